// SPDX-License-Identifier: Apache-2.0
//
// The one exported function of libsoftdc_device.so: softdc's functions by the names that libibverbs and libmlx5 give
// them, and those that serve the kernel's RDMA_CM interface (ucma/ucma.h) as softdc_ucma_open, _write, _close, and those that stand for
// files (device_files.h) as softdc_device_file_kind, _open.
// It uses the table (verbs.h). Functions that only unmodified programs need are in the other files of this folder.
//
// Threads       May be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_

// Null: softdc has no such function.
extern "C" __attribute__((visibility("default"))) void* softdc_function(const char* name);

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_

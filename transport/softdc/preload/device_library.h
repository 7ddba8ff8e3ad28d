// SPDX-License-Identifier: Apache-2.0
//
// The one exported function of libsoftdc_device.so. It returns the functions of softdc by name:
//
//   names of libibverbs and libmlx5                                 verbs
//   softdc_ucma_open, softdc_ucma_write, softdc_ucma_close          the kernel's RDMA_CM interface (ucma/ucma.h)
//   softdc_device_file_kind, softdc_device_file_open                files of the device (device_files.h)
//
// It uses the table (verbs.h). Functions that only unmodified programs need are in the other files of this folder.
//
// Threads       May be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_

// Returns the function, or null if softdc has no such function.
extern "C" __attribute__((visibility("default"))) void* softdc_function(const char* name);

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_LIBRARY_H_

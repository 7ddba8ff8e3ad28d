// SPDX-License-Identifier: Apache-2.0
//
// Connects the preload library to the device library, libsoftdc_device.so in the same folder. The first verbs call of the process opens the
// device library; it is never closed. Before that, a program carries only a table of addresses: no C++ runtime, no thread, no constructor.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_

extern "C" {

// Opens the device library and fills every slot of trampolines.cc. A second call waits for the first. If this fails, writes the reason to
// standard error, and no function is supported. Preserves errno.
void softdc_preload_load();

// Returns a function of the device library, or null if there is none. Loads the device library.
void* softdc_preload_function(const char* name);

}  // extern "C"

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_

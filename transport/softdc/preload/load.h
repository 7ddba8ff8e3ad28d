// SPDX-License-Identifier: Apache-2.0
//
// The preload library's way to the device library: libsoftdc_device.so beside it, opened at the first verbs call of
// the process and never closed. Until then a program carries nothing but a table of addresses: no C++ runtime, no
// thread, no constructor.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_

extern "C" {

// Opens the device library and fills every slot of trampolines.cc; a second call waits for the first. Says on the
// standard error why it failed, and then no function is supported. errno is kept.
void softdc_preload_load();

// A function of the device library, null where it has none. Loads it.
void* softdc_preload_function(const char* name);

}  // extern "C"

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_LOAD_H_

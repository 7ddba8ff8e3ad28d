// SPDX-License-Identifier: Apache-2.0
//
// What the files with libc's calls share. Include with _FORTIFY_SOURCE undefined.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_

#include <dlfcn.h>

#define SOFTDC_EXPORTED __attribute__((visibility("default")))

// The next definition of a function, found at its first use: other libraries' constructors may call us before ours
// could run.
template <typename Function>
Function* Next(Function** cache, const char* name) {
  Function* function = __atomic_load_n(cache, __ATOMIC_RELAXED);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    __atomic_store_n(cache, function, __ATOMIC_RELAXED);
  }
  return function;
}

extern "C" {

// A descriptor of an attribute of the device, -1 with errno, or -2: the path is none of the device's files, or one that
// is not opened here (path_calls.cc). No path but those of devices costs more than a comparison.
int softdc_open_device_file(const char* path, int flags);

}  // extern "C"

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_

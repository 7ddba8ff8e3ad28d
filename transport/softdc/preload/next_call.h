// SPDX-License-Identifier: Apache-2.0
//
// Helpers of the files that define calls of libc. Include with _FORTIFY_SOURCE undefined.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_

#include <dlfcn.h>

#define SOFTDC_EXPORTED __attribute__((visibility("default")))

// Returns the next definition of a function. Looks it up at the first use, because constructors of other libraries may call these functions
// before a constructor of this library runs.
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

// Returns a descriptor of an attribute of the device, or -1 with errno. Returns -2 if the path is no file of the device, or a file that is
// not opened here (path_calls.cc). For paths outside the folders of devices, the only cost is a comparison.
int softdc_open_device_file(const char* path, int flags);

}  // extern "C"

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_NEXT_CALL_H_

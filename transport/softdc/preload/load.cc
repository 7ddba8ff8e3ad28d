// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/load.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" {
// One word for each symbol, in trampolines.cc.
#define SOFTDC_SYMBOL(name, result) \
  extern void* softdc_slot_##name __attribute__((visibility("hidden")));
#include "transport/softdc/preload/symbols.inc"
#undef SOFTDC_SYMBOL
}

namespace {

constexpr char kDeviceLibrary[] = "libsoftdc_device.so";

int UnsupportedErrno() { return errno = EOPNOTSUPP; }
long UnsupportedMinusOne() {
  errno = EOPNOTSUPP;
  return -1;
}
void* UnsupportedPointer() {
  errno = EOPNOTSUPP;
  return nullptr;
}
long UnsupportedNothing() {
  errno = EOPNOTSUPP;
  return 0;
}

// The caller removes the arguments from the stack, so one function serves every signature.
enum class Result { ERRNO, MINUS_ONE, POINTER, NOTHING };

void* Unsupported(Result result) {
  switch (result) {
    case Result::ERRNO:
      return reinterpret_cast<void*>(&UnsupportedErrno);
    case Result::MINUS_ONE:
      return reinterpret_cast<void*>(&UnsupportedMinusOne);
    case Result::POINTER:
      return reinterpret_cast<void*>(&UnsupportedPointer);
    case Result::NOTHING:
      break;
  }
  return reinterpret_cast<void*>(&UnsupportedNothing);
}

using Lookup = void* (*)(const char* name);

void* NoFunction(const char*) { return nullptr; }

pthread_once_t once = PTHREAD_ONCE_INIT;
Lookup lookup = &NoFunction;  // written under `once`

bool SanitizerPresent() {
  return dlsym(RTLD_DEFAULT, "__asan_init") != nullptr ||
         dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr;
}

Lookup OpenDeviceLibrary() {
  Dl_info self;
  char path[4096];
  if (dladdr(reinterpret_cast<void*>(&softdc_preload_load), &self) == 0) return &NoFunction;
  const char* slash = std::strrchr(self.dli_fname, '/');
  const int folder_bytes = slash == nullptr ? 0 : static_cast<int>(slash - self.dli_fname + 1);
  const int length =
      std::snprintf(path, sizeof(path), "%.*s%s", folder_bytes, self.dli_fname, kDeviceLibrary);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) return &NoFunction;
  // Deep binding: the library uses its own protobuf and Abseil, even if the program has others. Its calls of open(), write() and close() go
  // to libc, not to this library. The sanitizers do not accept deep binding.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | (SanitizerPresent() ? 0 : RTLD_DEEPBIND));
  if (library == nullptr) {
    std::fprintf(stderr, "softdc: no device: %s\n", dlerror());
    return &NoFunction;
  }
  void* found = dlsym(library, "softdc_function");
  if (found == nullptr) {
    std::fprintf(stderr, "softdc: no device: %s is of another kind\n", path);
    return &NoFunction;
  }
  return reinterpret_cast<Lookup>(found);
}

void Load() {
  lookup = OpenDeviceLibrary();
#define SOFTDC_SYMBOL(name, result)                                    \
  {                                                                    \
    void* function = lookup(#name);                                    \
    if (function == nullptr) function = Unsupported(Result::result);   \
    __atomic_store_n(&softdc_slot_##name, function, __ATOMIC_RELEASE); \
  }
#include "transport/softdc/preload/symbols.inc"
#undef SOFTDC_SYMBOL
}

}  // namespace

extern "C" {

void softdc_preload_load() {
  const int saved_errno = errno;
  pthread_once(&once, &Load);
  errno = saved_errno;
}

void* softdc_preload_function(const char* name) {
  softdc_preload_load();
  return lookup(name);
}

}  // extern "C"

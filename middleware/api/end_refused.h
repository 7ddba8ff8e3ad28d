// SPDX-License-Identifier: Apache-2.0
//
// EndRefused(): called by a destructor that would have to wait for its own thread. Writes a message to standard error and ends the
// process.
#ifndef SLUICE_MIDDLEWARE_API_END_REFUSED_H_
#define SLUICE_MIDDLEWARE_API_END_REFUSED_H_

#include <cstdio>
#include <cstdlib>

namespace sluice::internal {

// Writes the message, and ends the process with abort(). `object`: for example "Server". `where`: for example "a handler of its own".
[[noreturn]] inline void EndRefused(const char* object, const char* where, const char* remedy) {
  std::fprintf(stderr, "sluice: error: api: %s destroyed in %s, which its end waits for: %s\n",
               object, where, remedy);
  std::abort();
}

}  // namespace sluice::internal

#endif  // SLUICE_MIDDLEWARE_API_END_REFUSED_H_

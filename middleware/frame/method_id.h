// SPDX-License-Identifier: Apache-2.0
//
// MethodId(): the number that names a method on the wire.
//
// FNV-1a, 64 bit, of "/package.Service/Method". Two methods of one server with the same number are
// refused at registration (chance for a thousand methods: 3e-14), so a number always means one
// method. Never change this function: it is part of the wire format
// (tests/middleware/frame/method_id_test.cc has golden values).
#ifndef SLUICE_MIDDLEWARE_FRAME_METHOD_ID_H_
#define SLUICE_MIDDLEWARE_FRAME_METHOD_ID_H_

#include <cstdint>
#include <string_view>

namespace sluice::frame {

constexpr uint64_t MethodId(std::string_view full_name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : full_name) {
    hash ^= static_cast<uint8_t>(c);
    hash *= 0x100000001b3u;
  }
  return hash == 0 ? 1 : hash;  // 0 means "no method"
}

}  // namespace sluice::frame

#endif  // SLUICE_MIDDLEWARE_FRAME_METHOD_ID_H_

// SPDX-License-Identifier: Apache-2.0
//
// BytesOf: bytes that a number determines, fit for a string field.
#ifndef SLUICE_TESTS_HOSTILE_PAYLOAD_H_
#define SLUICE_TESTS_HOSTILE_PAYLOAD_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "transport/base/random.h"

namespace sluice::hostile {

inline std::string BytesOf(uint64_t number, uint32_t size) {
  std::string bytes(size, '\0');
  base::SeededRandom random(number);
  for (uint32_t at = 0; at < size; at += 8) {
    const uint64_t word = random.Next64() & 0x3f3f3f3f3f3f3f3f;  // UTF-8
    std::copy_n(reinterpret_cast<const char*>(&word), std::min<uint32_t>(8, size - at), &bytes[at]);
  }
  return bytes;
}

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_PAYLOAD_H_

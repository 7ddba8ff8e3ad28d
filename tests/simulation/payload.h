// SPDX-License-Identifier: Apache-2.0
//
// The content of the messages of a run: it follows from the message's name, so that the receiver can tell whether it is
// what was sent.
#ifndef SLUICE_TESTS_SIMULATION_PAYLOAD_H_
#define SLUICE_TESTS_SIMULATION_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sluice::simulation {

inline uint64_t PayloadWord(uint64_t name, size_t index) {
  return (name + index + 1) * 0x9e3779b97f4a7c15u;
}

inline void FillPayload(uint64_t name, std::span<std::byte> payload) {
  size_t at = 0;
  for (; at + 8 <= payload.size(); at += 8) {
    const uint64_t word = PayloadWord(name, at / 8);
    std::memcpy(payload.data() + at, &word, 8);
  }
  const uint64_t word = PayloadWord(name, at / 8);
  std::memcpy(payload.data() + at, &word, payload.size() - at);
}

inline bool IsPayload(uint64_t name, std::span<const std::byte> payload) {
  size_t at = 0;
  for (; at + 8 <= payload.size(); at += 8) {
    const uint64_t word = PayloadWord(name, at / 8);
    if (std::memcmp(payload.data() + at, &word, 8) != 0) return false;
  }
  const uint64_t word = PayloadWord(name, at / 8);
  return std::memcmp(payload.data() + at, &word, payload.size() - at) == 0;
}

}  // namespace sluice::simulation

#endif  // SLUICE_TESTS_SIMULATION_PAYLOAD_H_

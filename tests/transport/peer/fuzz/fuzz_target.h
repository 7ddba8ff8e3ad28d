// SPDX-License-Identifier: Apache-2.0
//
// What a fuzz target is made of. Each *_fuzz.cc is linked twice: with libFuzzer (./dev fuzz), and
// with replay_main.cc, which runs the kept corpus in every build.
#ifndef SLUICE_TESTS_TRANSPORT_PEER_FUZZ_FUZZ_TARGET_H_
#define SLUICE_TESTS_TRANSPORT_PEER_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/transport/peer/handshake_samples.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace sluice::peer {

inline Bytes Input(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// Number of inputs that a decoder has accepted. The replay of a corpus fails if there is none: then the corpus is of another version,
// and reaches no code behind the first check.
inline uint64_t accepted = 0;

// What must hold for any input; libFuzzer keeps the input that ends the process.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace sluice::peer

#endif  // SLUICE_TESTS_TRANSPORT_PEER_FUZZ_FUZZ_TARGET_H_

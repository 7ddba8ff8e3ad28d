// SPDX-License-Identifier: Apache-2.0
//
// The private data of a reject, as a client reads it.
#include <cctype>
#include <string>

#include "tests/transport/peer/fuzz/fuzz_target.h"
#include "transport/peer/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::peer;
  static const absl::Status kFallback = absl::UnavailableError("fallback");
  const absl::Status status = DecodeRefusal(Input(data, size), "peer", kFallback);
  Require(!status.ok(), "a reject is never good news");
  for (const char c : std::string(status.message())) {
    Require(std::isprint(static_cast<unsigned char>(c)) != 0, "nothing but text is shown");
  }
  const auto cookie = CookieIn(Input(data, size));
  if (cookie.has_value()) {
    ++accepted;
    const auto again = EncodeRefusal(*cookie);
    Require(Hex(again) == Hex(Input(data, size).first(again.size())),
            "a cookie read and written is the same");
  }
  return 0;
}

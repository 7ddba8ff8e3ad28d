// SPDX-License-Identifier: Apache-2.0
//
// A message at the control DCT: the prefix, and terms. As it stands, and once more with what comes
// after the prefix sealed under the right key, so that what lies behind the seal is reached.
#include <algorithm>
#include <array>

#include "tests/transport/peer/fuzz/fuzz_target.h"
#include "transport/peer/prefix.h"
#include "transport/peer/window_words.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::peer;
  static const Key kKey = KeyFromText("control");
  const Bytes bytes = Input(data, size);
  Prefix prefix;
  if (!LoadPrefix(bytes.data(), bytes.size(), &prefix)) return 0;
  ++accepted;
  std::array<std::byte, kPrefixBytes> again;
  StorePrefix(again.data(), prefix);
  Require(Hex(again) == Hex(bytes.first(kPrefixBytes)), "prefix read and written is the same");
  Require(!OpenTerms(bytes.subspan(kPrefixBytes), kKey, again).ok(), "nobody guesses a seal");
  if (const auto word = DecodeWindowWord(bytes.subspan(kPrefixBytes)); word.has_value()) {
    Require(Hex(EncodeWindowWord(*word)) == Hex(bytes.subspan(kPrefixBytes)),
            "a window word read and written is the same");
  }

  std::array<std::byte, kTermsBytes> plain = {};
  const Bytes body = bytes.subspan(kPrefixBytes);
  std::copy_n(body.begin(), std::min(body.size(), plain.size()), plain.begin());
  std::array<std::byte, kSealedTermsBytes> sealed;
  Seal(kKey, again, plain, sealed.data());
  const auto terms = OpenTerms(sealed, kKey, again);
  if (!terms.ok() || terms->refusal != RefusalCode::kNone) return 0;
  Require(terms->data_dctn != 0 && terms->data_dctn <= kMaxQpn, "DCT number in range");
  Require(terms->token != 0 && terms->credits != 0 && terms->credits <= kMaxCredits &&
              terms->window <= terms->credits,
          "token, credits and window in range");
  Require(Hex(SealTerms(*terms, kKey, again)) == Hex(sealed),
          "terms read and written are the same");
  const Agreement agreed = Agree(kSampleTerms, *terms);
  Require(agreed.max_message_bytes != 0 &&
              agreed.max_message_bytes <= kSampleTerms.max_message_bytes &&
              agreed.max_message_bytes <= terms->max_message_bytes,
          "messages are as long as both take");
  return 0;
}

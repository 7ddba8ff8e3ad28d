// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/terms.h"

#include <algorithm>

#include "transport/base/error.h"
#include "transport/peer/handshake.h"
#include "transport/peer/wire.h"

namespace sluice::peer {
namespace {

absl::Status Absurd(const char* cause) {
  return base::Error(absl::StatusCode::kInvalidArgument, "the other side's terms can't be",
                     {.layer = "peer",
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = "run the same release of Sluice on both sides"});
}

}  // namespace

std::array<std::byte, kSealedTermsBytes> SealTerms(const Terms& terms, const Key& key,
                                                   Bytes prefix) {
  std::array<std::byte, kTermsBytes> plain = {};
  Store(plain.data(), terms.data_dctn);
  Store(plain.data() + 4, terms.max_message_bytes);
  Store(plain.data() + 8, terms.data_key);
  Store(plain.data() + 16, terms.control_key);
  Store(plain.data() + 24, terms.peer_index);
  Store(plain.data() + 28, terms.token);
  if (terms.refusal == RefusalCode::kNone) {
    Store(plain.data() + 32, static_cast<uint16_t>(terms.credits));
    Store(plain.data() + 34, static_cast<uint16_t>(terms.window));
  } else {
    Store(plain.data() + 32, terms.credits);
  }
  Store(plain.data() + 36, terms.reads);
  Store(plain.data() + 37, terms.mtu);
  Store(plain.data() + 38, terms.service_level);
  Store(plain.data() + 39, static_cast<uint8_t>(terms.refusal));
  Store(plain.data() + 40, terms.max_large_bytes);
  std::array<std::byte, kSealedTermsBytes> sealed;
  Seal(key, prefix, plain, sealed.data());
  Wipe(plain.data(), plain.size());
  return sealed;
}

absl::StatusOr<Terms> OpenTerms(Bytes sealed, const Key& key, Bytes prefix) {
  std::array<std::byte, kTermsBytes> plain;
  if (sealed.size() != kSealedTermsBytes || !Open(key, prefix, sealed, plain.data())) {
    return base::Error(
        absl::StatusCode::kUnauthenticated, "the other side has not proved the secret",
        {.layer = "peer",
         .operation = "handshake",
         .cause = "its proof was not made with the secret, or not for this handshake",
         .remedy = "give both sides the same secret"});
  }
  const std::byte* in = plain.data();
  Terms terms;
  terms.data_dctn = Load<uint32_t>(in);
  terms.max_message_bytes = Load<uint32_t>(in + 4);
  terms.data_key = Load<uint64_t>(in + 8);
  terms.control_key = Load<uint64_t>(in + 16);
  terms.peer_index = Load<uint32_t>(in + 24);
  terms.token = Load<uint32_t>(in + 28);
  terms.credits = Load<uint32_t>(in + 32);
  terms.reads = Load<uint8_t>(in + 36);
  terms.mtu = Load<uint8_t>(in + 37);
  terms.service_level = Load<uint8_t>(in + 38);
  terms.refusal = static_cast<RefusalCode>(Load<uint8_t>(in + 39));
  terms.max_large_bytes = Load<uint64_t>(in + 40);
  Wipe(plain.data(), plain.size());
  if (terms.refusal != RefusalCode::kNone) {
    return Terms{
        .peer_index = terms.peer_index, .credits = terms.credits, .refusal = terms.refusal};
  }
  terms.window = terms.credits >> 16;
  terms.credits &= UINT16_MAX;
  if (terms.data_dctn == 0 || terms.data_dctn > kMaxQpn) {
    return Absurd("a DCT number is out of range");
  }
  if (terms.token == 0) return Absurd("its token is zero");
  if (terms.max_message_bytes < kMinMessageBytes) return Absurd("it takes no messages");
  if (terms.credits == 0 || terms.credits > kMaxCredits || terms.window > terms.credits) {
    return Absurd("its credits are absurd");
  }
  if (terms.mtu < 1 || terms.mtu > 5) return Absurd("its path MTU is none");
  if (terms.service_level > 15) return Absurd("its service level is out of range");
  if (terms.max_large_bytes > kMaxLargeBytes) return Absurd("its large messages are absurd");
  return terms;
}

Agreement Agree(const Terms& own, const Terms& other) {
  return {.max_message_bytes = std::min(own.max_message_bytes, other.max_message_bytes),
          .max_large_bytes = std::min(own.max_large_bytes, other.max_large_bytes),
          .reads = std::min(own.reads, other.reads)};
}

std::string UnlikeMtus(uint32_t own_bytes, uint32_t other_bytes) {
  return "this side's path MTU is " + std::to_string(own_bytes) + " bytes, the other side's " +
         std::to_string(other_bytes);
}

}  // namespace sluice::peer

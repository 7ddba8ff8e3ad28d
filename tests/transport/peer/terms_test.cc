// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/terms.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/peer/handshake_samples.h"
#include "transport/base/random.h"
#include "transport/peer/prefix.h"

namespace sluice::peer {
namespace terms_test {

SessionKeys SampleKeys() {
  const Secrets secrets = SampleSecrets();
  SessionKeys keys;
  EncodeWelcome(SampleWelcome(secrets.own().id), kSampleAccess,
                EncodeHello(SampleHello(secrets.own().id), secrets.own()), secrets.own(), &keys);
  return keys;
}

std::array<std::byte, kPrefixBytes> ProofPrefix() {
  std::array<std::byte, kPrefixBytes> bytes;
  StorePrefix(bytes.data(), {.peer_index = 7,
                             .token = 0x80000001,
                             .granted = 64,
                             .kind = Kind::kProof,
                             .flags = 0,
                             .number = 0});
  return bytes;
}

absl::StatusCode Opened(Bytes message, const Key& key) {
  return OpenTerms(message.subspan(kPrefixBytes), key, message.first(kPrefixBytes)).status().code();
}

TEST(SealTerms, BytesAreTheGoldenOnes) {
  const auto prefix = ProofPrefix();
  const auto sealed = SealTerms(kSampleTerms, SampleKeys().proof, prefix);
  EXPECT_EQ(Hex(prefix) + Hex(sealed), kGoldenProof);
}

TEST(OpenTerms, RoundTrip) {
  const auto prefix = ProofPrefix();
  const auto terms =
      OpenTerms(SealTerms(kSampleTerms, SampleKeys().proof, prefix), SampleKeys().proof, prefix);
  ASSERT_TRUE(terms.ok()) << terms.status();
  EXPECT_EQ(*terms, kSampleTerms);
}

TEST(OpenTerms, EveryWrongBitOfMessageAndPrefixIsUnauthenticated) {
  const SessionKeys keys = SampleKeys();
  const std::vector<std::byte> golden = FromHex(kGoldenProof);
  ASSERT_EQ(Opened(golden, keys.proof), absl::StatusCode::kOk);
  for (size_t at = 0; at < golden.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> bytes = golden;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_EQ(Opened(bytes, keys.proof), absl::StatusCode::kUnauthenticated) << at << "." << bit;
    }
  }
}

TEST(OpenTerms, EveryTruncationAndAByteMoreAreUnauthenticated) {
  const SessionKeys keys = SampleKeys();
  std::vector<std::byte> bytes = FromHex(kGoldenProof);
  bytes.push_back(std::byte{0});
  EXPECT_EQ(Opened(bytes, keys.proof), absl::StatusCode::kUnauthenticated);
  for (size_t length = kPrefixBytes; length < kPrefixBytes + kSealedTermsBytes; ++length) {
    EXPECT_EQ(Opened(Bytes(bytes).first(length), keys.proof), absl::StatusCode::kUnauthenticated);
  }
}

TEST(OpenTerms, ProofIsNoAnswer) {
  EXPECT_EQ(Opened(FromHex(kGoldenProof), SampleKeys().answer), absl::StatusCode::kUnauthenticated);
}

// The other side holds the secret, and says what can't be.
TEST(OpenTerms, AbsurdValuesAreRefused) {
  const Key key = SampleKeys().answer;
  const auto refused = [&](auto change) {
    Terms terms = kSampleTerms;
    change(terms);
    return OpenTerms(SealTerms(terms, key, {}), key, {}).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused([](Terms&) {}));
  EXPECT_TRUE(refused([](Terms& t) { t.data_dctn = 0; }));
  EXPECT_TRUE(refused([](Terms& t) { t.data_dctn = 1u << 24; }));
  EXPECT_TRUE(refused([](Terms& t) { t.token = 0; }));
  EXPECT_TRUE(refused([](Terms& t) { t.credits = 0; }));
  EXPECT_TRUE(refused([](Terms& t) { t.credits = kMaxCredits + 1; }));
  EXPECT_FALSE(refused([](Terms& t) { t.credits = kMaxCredits; }));
  EXPECT_FALSE(refused([](Terms& t) { t.window = 0; }));
  EXPECT_FALSE(refused([](Terms& t) { t.window = t.credits; }));
  EXPECT_TRUE(refused([](Terms& t) { t.window = t.credits + 1; }));
  EXPECT_TRUE(refused([](Terms& t) { t.max_message_bytes = 0; }));
  EXPECT_TRUE(refused([](Terms& t) { t.max_message_bytes = kMinMessageBytes - 1; }));
  EXPECT_TRUE(refused([](Terms& t) { t.mtu = 0; }));
  EXPECT_TRUE(refused([](Terms& t) { t.mtu = 6; }));
  EXPECT_TRUE(refused([](Terms& t) { t.service_level = 16; }));
}

TEST(OpenTerms, RefusalNeedsNothingElse) {
  const Key key = SampleKeys().answer;
  const auto terms = OpenTerms(SealTerms({.refusal = RefusalCode::kFull}, key, {}), key, {});
  ASSERT_TRUE(terms.ok()) << terms.status();
  EXPECT_EQ(terms->refusal, RefusalCode::kFull);
  const Terms full{.peer_index = 7, .credits = 64, .refusal = RefusalCode::kFull};
  const auto with_numbers =
      OpenTerms(SealTerms(full, SampleKeys().proof, {}), SampleKeys().proof, {});
  ASSERT_TRUE(with_numbers.ok()) << with_numbers.status();
  EXPECT_EQ(*with_numbers, full);
}

TEST(OpenTerms, SurvivesGarbage) {
  base::SeededRandom random(20261122);
  const Key key = SampleKeys().proof;
  for (int i = 0; i < 20'000; ++i) {
    // Any plain text under the right key: decoded within the ranges, or refused.
    std::array<std::byte, kTermsBytes> plain;
    const auto valid = FromHex(kGoldenProof);
    ASSERT_TRUE(Open(key, Bytes(valid).first(kPrefixBytes), Bytes(valid).subspan(kPrefixBytes),
                     plain.data()));
    for (uint64_t changes = 1 + random.Below(4); changes > 0; --changes) {
      plain[random.Below(plain.size())] = static_cast<std::byte>(random.Next64());
    }
    std::array<std::byte, kSealedTermsBytes> sealed;
    Seal(key, {}, plain, sealed.data());
    const auto terms = OpenTerms(sealed, key, {});
    if (!terms.ok() || terms->refusal != RefusalCode::kNone) continue;
    ASSERT_NE(terms->token, 0u);
    ASSERT_LT(terms->data_dctn, 1u << 24);
    ASSERT_LE(terms->credits, kMaxCredits);
    ASSERT_LE(terms->window, terms->credits);
    ASSERT_LE(terms->mtu, 5);
  }
}

TEST(Agree, EachLimitIsTheLowerOne) {
  Terms own = kSampleTerms, other = kSampleTerms;
  own.max_message_bytes = 4096;
  other.reads = 2;
  own.max_large_bytes = 1 << 20;
  other.max_large_bytes = 1 << 19;
  const Agreement agreed = Agree(own, other);
  EXPECT_EQ(agreed.max_message_bytes, 4096u);
  EXPECT_EQ(agreed.reads, 2);
  EXPECT_EQ(agreed.max_large_bytes, 1u << 19);
  own.max_large_bytes = 1 << 18;
  EXPECT_EQ(Agree(own, other).max_large_bytes, 1u << 18);
}

TEST(UnlikeMtus, NamesBoth) {
  Terms own = kSampleTerms, other = kSampleTerms;
  other.mtu = 2;
  EXPECT_EQ(UnlikeMtus(own.mtu_bytes(), other.mtu_bytes()),
            "this side's path MTU is 1024 bytes, the other side's 512");
}

}  // namespace terms_test
}  // namespace sluice::peer

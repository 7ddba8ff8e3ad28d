// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/handshake.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/peer/handshake_samples.h"
#include "transport/base/random.h"

namespace sluice::peer {
namespace handshake_test {

// Both messages of one handshake, and the keys that the server made.
struct Exchange {
  explicit Exchange(const Secrets& both)
      : secrets(both),
        hello(EncodeHello(SampleHello(secrets.own().id), secrets.own())),
        welcome(EncodeWelcome(SampleWelcome(secrets.own().id), kSampleAccess, hello, secrets.own(),
                              &keys)) {}

  absl::StatusCode OpenedWith(const Secret& secret, Bytes hello_bytes, Bytes welcome_bytes) const {
    SessionKeys unused;
    return DecodeWelcome(welcome_bytes, hello_bytes, secret, &unused).status().code();
  }

  Secrets secrets;
  SessionKeys keys;
  HelloMessage hello;
  WelcomeMessage welcome;
};

TEST(EncodeHello, BytesAreTheGoldenOnes) {
  const Secrets secrets = SampleSecrets();
  EXPECT_EQ(Hex(EncodeHello(SampleHello(secrets.own().id), secrets.own())), kGoldenHello);
  const Secrets none;
  EXPECT_EQ(
      Hex(EncodeHello({.epoch = 1, .control_dctn = 5, .nonce = CountingNonce(0x10)}, none.own())),
      kGoldenOpenHello);
}

TEST(EncodeHello, WithACookieBytesAreTheGoldenOnesAndComeBack) {
  const Secrets secrets = SampleSecrets();
  Greeting sent = SampleHello(secrets.own().id);
  sent.Bring(kSampleCookie);
  const HelloMessage bytes = EncodeHello(sent, secrets.own());
  EXPECT_EQ(Hex(bytes), kGoldenCookieHello);
  const auto hello = DecodeHello(bytes);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(*hello, sent);
  EXPECT_TRUE(hello->has_cookie);
  EXPECT_EQ(hello->cookie(), kSampleCookie);
  EXPECT_TRUE(Proven(bytes, secrets.own()));
  EXPECT_EQ(Hex(MacIn(bytes)), Hex(Bytes(bytes).last(kMacBytes)));
}

// A cookie is under the MAC: nobody puts one into somebody else's hello.
TEST(Proven, ACookiePutIntoARecordedHelloIsFound) {
  const Secrets secrets = SampleSecrets();
  HelloMessage bytes = EncodeHello(SampleHello(secrets.own().id), secrets.own());
  bytes[6] = std::byte{4};
  std::copy(kSampleCookie.begin(), kSampleCookie.end(), bytes.begin() + 32);
  ASSERT_TRUE(DecodeHello(bytes).ok());
  EXPECT_FALSE(Proven(bytes, secrets.own()));
}

TEST(DecodeWelcome, ACookieDoesNotBelongThere) {
  const Secrets secrets = SampleSecrets();
  const HelloMessage hello = EncodeHello(SampleHello(secrets.own().id), secrets.own());
  SessionKeys keys;
  Greeting greeting = SampleWelcome(secrets.own().id);
  greeting.has_cookie = true;
  const WelcomeMessage bytes = EncodeWelcome(greeting, kSampleAccess, hello, secrets.own(), &keys);
  EXPECT_EQ(DecodeWelcome(bytes, hello, secrets.own(), &keys).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(EncodeWelcome, BytesAreTheGoldenOnes) {
  EXPECT_EQ(Hex(Exchange(SampleSecrets()).welcome), kGoldenWelcome);
}

TEST(DecodeHello, RoundTripAlsoWithZeroPadding) {
  for (const Secrets& secrets : {SampleSecrets(), Secrets()}) {
    const Greeting sent = SampleHello(secrets.own().id);
    const HelloMessage bytes = EncodeHello(sent, secrets.own());
    std::vector<std::byte> padded(bytes.begin(), bytes.end());
    padded.resize(196);
    for (const Bytes in : {Bytes(bytes), Bytes(padded)}) {
      const auto hello = DecodeHello(in);
      ASSERT_TRUE(hello.ok()) << hello.status();
      EXPECT_EQ(*hello, sent);
      EXPECT_TRUE(Proven(in, secrets.own()));
    }
  }
}

TEST(DecodeHello, WithoutDcIsAFlagAndNoNumber) {
  const Secrets secrets = SampleSecrets();
  Greeting sent = SampleHello(secrets.own().id);
  sent.control_dctn = 0;
  HelloMessage bytes = EncodeHello(sent, secrets.own());
  EXPECT_EQ(bytes[6], std::byte{2});
  auto hello = DecodeHello(bytes);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_TRUE(hello->without_dc());
  EXPECT_TRUE(Proven(bytes, secrets.own()));
  bytes[6] = std::byte{0};  // and no number after all
  EXPECT_FALSE(DecodeHello(bytes).ok());
}

TEST(DecodeWelcome, WithoutDcGivesNoAccess) {
  const Secrets secrets = SampleSecrets();
  Greeting greeting = SampleHello(secrets.own().id);
  greeting.control_dctn = 0;
  const HelloMessage hello = EncodeHello(greeting, secrets.own());
  SessionKeys theirs, ours;
  const WelcomeMessage bytes = EncodeWelcome(greeting, {}, hello, secrets.own(), &theirs);
  const auto welcome = DecodeWelcome(bytes, hello, secrets.own(), &ours);
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_TRUE(welcome->greeting.without_dc());
  EXPECT_EQ(welcome->access, ControlAccess());
  // Access to a DCT that there is not.
  const WelcomeMessage strange =
      EncodeWelcome(greeting, kSampleAccess, hello, secrets.own(), &theirs);
  EXPECT_FALSE(DecodeWelcome(strange, hello, secrets.own(), &ours).ok());
}

TEST(DecodeHello, EveryTruncationIsRefused) {
  const Exchange exchange(SampleSecrets());
  for (size_t length = 0; length < kHelloBytes; ++length) {
    EXPECT_EQ(DecodeHello(Bytes(exchange.hello).first(length)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << length;
  }
}

TEST(DecodeHello, AnotherVersionNamesBoth) {
  HelloMessage bytes = Exchange(SampleSecrets()).hello;
  bytes[4] = std::byte{9};
  const auto hello = DecodeHello(bytes);
  EXPECT_EQ(hello.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(hello.status().message().find("version 6, the other side version 9"),
            absl::string_view::npos)
      << hello.status();
}

TEST(DecodeHello, WrongKindFlagsAndNumbersAreRefused) {
  const Exchange exchange(SampleSecrets());
  EXPECT_FALSE(DecodeHello(exchange.welcome).ok());
  const auto refused = [&](size_t at, uint8_t value) {
    HelloMessage bytes = exchange.hello;
    bytes[at] = static_cast<std::byte>(value);
    return DecodeHello(bytes).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(6, 1));     // says unauthenticated, and names a secret
  EXPECT_TRUE(refused(7, 0x80));  // a flag that nobody knows
  EXPECT_TRUE(refused(23, 1));    // a DCT number of 25 bits
  HelloMessage no_secret = EncodeHello(SampleHello(0), Secrets().own());
  no_secret[6] = std::byte{0};  // names no secret, and doesn't say so
  EXPECT_FALSE(DecodeHello(no_secret).ok());
  EXPECT_TRUE(refused(6, 2));  // says that there is no DC, and names a DCT
}

TEST(Proven, EveryWrongBitOfEachByteIsFound) {
  const Exchange exchange(SampleSecrets());
  for (size_t at = 0; at < kHelloBytes; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      HelloMessage bytes = exchange.hello;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(Proven(bytes, exchange.secrets.own())) << at << "." << bit;
    }
  }
}

TEST(Proven, AnotherSecretIsFound) {
  const Exchange exchange(SampleSecrets());
  EXPECT_FALSE(Proven(exchange.hello, SampleSecrets("correct horse battery stapler").own()));
  EXPECT_FALSE(Proven(exchange.hello, Secrets().own()));
}

TEST(DecodeWelcome, GivesWhatWasSealedAndTheSameKeys) {
  const Exchange exchange(SampleSecrets());
  std::vector<std::byte> padded(exchange.welcome.begin(), exchange.welcome.end());
  padded.resize(196);
  SessionKeys keys;
  const auto welcome = DecodeWelcome(padded, exchange.hello, exchange.secrets.own(), &keys);
  ASSERT_TRUE(welcome.ok()) << welcome.status();
  EXPECT_EQ(welcome->greeting, SampleWelcome(exchange.secrets.own().id));
  EXPECT_EQ(welcome->access, kSampleAccess);
  EXPECT_EQ(Hex({keys.proof.data(), Key::kBytes}), Hex({exchange.keys.proof.data(), Key::kBytes}));
  EXPECT_EQ(Hex({keys.answer.data(), Key::kBytes}),
            Hex({exchange.keys.answer.data(), Key::kBytes}));
  EXPECT_NE(Hex({keys.answer.data(), Key::kBytes}), Hex({keys.proof.data(), Key::kBytes}));
}

TEST(DecodeWelcome, EveryTruncationIsRefused) {
  const Exchange exchange(SampleSecrets());
  for (size_t length = 0; length < kWelcomeBytes; ++length) {
    EXPECT_EQ(exchange.OpenedWith(exchange.secrets.own(), exchange.hello,
                                  Bytes(exchange.welcome).first(length)),
              absl::StatusCode::kInvalidArgument)
        << length;
  }
}

TEST(DecodeWelcome, EveryWrongBitOfEachByteIsRefused) {
  const Exchange exchange(SampleSecrets());
  for (size_t at = 0; at < kWelcomeBytes; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      WelcomeMessage bytes = exchange.welcome;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(exchange.OpenedWith(exchange.secrets.own(), exchange.hello, bytes),
                absl::StatusCode::kOk)
          << at << "." << bit;
    }
  }
}

TEST(DecodeWelcome, ToAnotherHelloIsRefused) {
  const Exchange exchange(SampleSecrets());
  for (size_t at = 0; at < kHelloBytes; ++at) {
    HelloMessage other = exchange.hello;
    other[at] ^= std::byte{1};
    EXPECT_EQ(exchange.OpenedWith(exchange.secrets.own(), other, exchange.welcome),
              absl::StatusCode::kUnauthenticated)
        << at;
  }
}

TEST(DecodeWelcome, WithoutOrWithAnotherSecretIsRefused) {
  const Exchange exchange(SampleSecrets());
  const Exchange open{Secrets()};
  EXPECT_EQ(open.OpenedWith(open.secrets.own(), open.hello, open.welcome), absl::StatusCode::kOk);
  EXPECT_EQ(exchange.OpenedWith(exchange.secrets.own(), exchange.hello, open.welcome),
            absl::StatusCode::kUnauthenticated);
  // Somebody who knows the id but not the secret.
  Secret forged;
  forged.id = exchange.secrets.own().id;
  SessionKeys keys;
  const WelcomeMessage bytes =
      EncodeWelcome(SampleWelcome(forged.id), kSampleAccess, exchange.hello, forged, &keys);
  EXPECT_EQ(exchange.OpenedWith(exchange.secrets.own(), exchange.hello, bytes),
            absl::StatusCode::kUnauthenticated);
}

TEST(DecodeWelcome, ZeroTokenIsRefused) {
  const Exchange exchange(SampleSecrets());
  SessionKeys keys;
  const WelcomeMessage bytes = EncodeWelcome(SampleWelcome(exchange.secrets.own().id), {.key = 1},
                                             exchange.hello, exchange.secrets.own(), &keys);
  EXPECT_EQ(exchange.OpenedWith(exchange.secrets.own(), exchange.hello, bytes),
            absl::StatusCode::kInvalidArgument);
}

TEST(DrawNonce, ComesFromTheSourceGiven) {
  base::SeededRandom one(7), same(7), other(8);
  EXPECT_EQ(DrawNonce(one), DrawNonce(same));
  EXPECT_NE(DrawNonce(one), DrawNonce(other));
}

// Random bytes, and valid messages with random changes: refused, or decoded within the ranges and
// without a proof; never worse.
TEST(DecodeHello, SurvivesGarbage) {
  base::SeededRandom random(20261120);
  const Exchange exchange(SampleSecrets());
  int decoded = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes;
    if (i % 2 == 0) {
      const Bytes valid = i % 4 == 0 ? Bytes(exchange.hello) : Bytes(exchange.welcome);
      bytes.assign(valid.begin(), valid.end());
      for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) {
        bytes[random.Below(bytes.size())] ^= static_cast<std::byte>(1 + random.Below(255));
      }
    } else {
      bytes.resize(random.Below(200));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next64());
    }
    const auto hello = DecodeHello(bytes);
    if (hello.ok()) {
      ++decoded;
      ASSERT_NE(hello->control_dctn, 0u);
      ASSERT_LT(hello->control_dctn, 1u << 24);
      // Two changes of one byte may undo each other.
      if (Hex(bytes) != kGoldenHello) {
        ASSERT_FALSE(Proven(bytes, exchange.secrets.own()));
      }
    }
    SessionKeys keys;
    if (Hex(bytes) != kGoldenWelcome) {
      ASSERT_FALSE(DecodeWelcome(bytes, exchange.hello, exchange.secrets.own(), &keys).ok());
    }
  }
  EXPECT_GT(decoded, 1'000);  // changed nonces and epochs are as good as any, but for the MAC
}

}  // namespace handshake_test
}  // namespace sluice::peer

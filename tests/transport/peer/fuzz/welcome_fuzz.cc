// SPDX-License-Identifier: Apache-2.0
//
// The private data of a connection response, as a client reads it. The input is the welcome's clear
// part and what is sealed in it, so that what lies behind the seal is reached; and as it stands.
#include <algorithm>
#include <vector>

#include "tests/transport/peer/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::peer;
  static const Secrets kSecrets = SampleSecrets();
  static const HelloMessage kHello = EncodeHello(SampleHello(kSecrets.own().id), kSecrets.own());
  const Bytes bytes = Input(data, size);
  SessionKeys keys;
  const auto as_it_stands = DecodeWelcome(bytes, kHello, kSecrets.own(), &keys);
  if (as_it_stands.ok()) Require(as_it_stands->access.token != 0, "token is not zero");

  constexpr size_t kClear = 40, kPlain = 16;
  if (size < kClear + kPlain) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.begin() + kClear);
  sealed.resize(kWelcomeBytes);
  const Key session = Derive(kSecrets.own().master, "sluice session", kHello, bytes.first(kClear));
  Seal(Derive(session, "welcome"), {}, bytes.subspan(kClear, kPlain), sealed.data() + kClear);
  const auto welcome = DecodeWelcome(sealed, kHello, kSecrets.own(), &keys);
  if (!welcome.ok()) return 0;
  ++accepted;
  Require(welcome->access.token != 0, "token is not zero");
  Require(welcome->greeting.secret_id == kSecrets.own().id, "secret is the one asked with");
  const WelcomeMessage again =
      EncodeWelcome(welcome->greeting, welcome->access, kHello, kSecrets.own(), &keys);
  Require(Hex(again) == Hex(sealed), "decode and encode are inverse");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
//
// The private data of a connection request, as a server reads it.
#include "tests/transport/peer/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::peer;
  static const Secrets kSecrets = SampleSecrets();
  static const Secrets kNone;
  const Bytes bytes = Input(data, size);
  const auto hello = DecodeHello(bytes);
  if (!hello.ok()) return 0;
  ++accepted;
  Require(hello->control_dctn <= kMaxQpn, "DCT number in range, or 0: without DC");
  // What was read says all that was written: made again, it is the same, the MAC apart.
  Secret secret;
  secret.id = hello->secret_id;
  const HelloMessage again = EncodeHello(*hello, secret);
  Require(Hex(Bytes(again).first(40)) == Hex(bytes.first(40)), "decode and encode are inverse");
  for (const Secrets* secrets : {&kSecrets, &kNone}) {
    if (hello->secret_id != secrets->own().id) continue;
    const bool same = Hex(EncodeHello(*hello, secrets->own())) == Hex(bytes.first(kHelloBytes));
    Require(Proven(bytes, secrets->own()) == same, "proven is what the holder would have sent");
  }
  return 0;
}

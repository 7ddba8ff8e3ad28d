// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/keyring.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace keyring_test {

using Texts = std::vector<std::string>;

constexpr char kRed[] = "the secret of the red ones";
constexpr char kBlue[] = "the secret of the blue ones";
constexpr char kBlueNext[] = "what the blue ones use next";

SecretSource Of(Texts texts) {
  return [texts = std::move(texts)] { return texts; };
}
SecretSource Unreadable() {
  return []() -> absl::StatusOr<Texts> { return absl::NotFoundError("no such file"); };
}
SecretId IdOf(const char* text) { return Secrets::FromTexts({text})->own().id; }

TEST(Keyring, NoSourceDemandsNothing) {
  const Keyring ring = Keyring::Read({});
  EXPECT_FALSE(ring.demanded());
  ASSERT_TRUE(ring.own().ok());
  EXPECT_EQ(ring.own()->id, 0u);
  ASSERT_TRUE(ring.Find(0).has_value());
  EXPECT_EQ(ring.Find(0)->tenant, 0u);
  EXPECT_TRUE(ring.Check().ok());
}

TEST(Keyring, ASecretSaysWhoseItIs) {
  const Keyring ring = Keyring::Read({Of({kRed}), Of({kBlue, kBlueNext})});
  EXPECT_TRUE(ring.Check().ok()) << ring.Check();
  EXPECT_TRUE(ring.demanded());
  EXPECT_EQ(ring.Find(IdOf(kRed))->tenant, 0u);
  EXPECT_EQ(ring.Find(IdOf(kBlue))->tenant, 1u);
  EXPECT_EQ(ring.Find(IdOf(kBlueNext))->tenant, 1u);
  EXPECT_EQ(ring.own()->id, IdOf(kRed));
  EXPECT_FALSE(ring.Find(0).has_value());
}

TEST(Keyring, ASecretOfTwoTenantsIsNobodys) {
  const Keyring ring = Keyring::Read({Of({kRed, kBlue}), Of({kBlue})});
  EXPECT_FALSE(ring.Find(IdOf(kBlue)).has_value());
  EXPECT_TRUE(ring.Find(IdOf(kRed)).has_value());
  EXPECT_EQ(ring.Check().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Keyring, AnUnreadableSourceLeavesTheOthersTheirs) {
  const Keyring ring = Keyring::Read({Unreadable(), Of({kBlue})});
  EXPECT_EQ(ring.Check().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ring.own().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ring.Find(IdOf(kBlue))->tenant, 1u);
  EXPECT_TRUE(ring.demanded());
  EXPECT_FALSE(ring.Find(0).has_value());
}

}  // namespace keyring_test
}  // namespace sluice::peer

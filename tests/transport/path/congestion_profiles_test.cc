// SPDX-License-Identifier: Apache-2.0
//
// Over softdc with another answer to ibv_query_ece where the test needs one.
#include "transport/path/congestion_profiles.h"

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/softdc/verbs.h"

namespace sluice::path {
namespace congestion_profiles_test {

using ::testing::HasSubstr;

constexpr uint32_t kVendor = 0x15b3;
constexpr uint32_t kDefaultQpn = 4711;

// softdc's table, with what the test wants to see or to change.
struct Calls {
  std::vector<uint32_t> options_set;
  bool set_in_init_only = true;
  int query_error = 0;
} calls;

verbs::VerbsApi WatchedTable() {
  calls = {};
  verbs::VerbsApi api = softdc::Verbs();
  api.set_ece = [](ibv_qp* qp, ibv_ece* ece) {
    calls.options_set.push_back(ece->options);
    calls.set_in_init_only = calls.set_in_init_only && qp->state == IBV_QPS_INIT;
    return softdc::Verbs().set_ece(qp, ece);
  };
  api.query_ece = [](ibv_qp* qp, ibv_ece* ece) {
    return calls.query_error != 0 ? calls.query_error : softdc::Verbs().query_ece(qp, ece);
  };
  return api;
}

class CongestionProfilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    api_ = WatchedTable();
    auto device = device::Device::Open("softdc0", {&api_});
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(*device);
    calls.options_set.clear();
  }

  CongestionProfiles Make(bool negotiate = true) {
    return CongestionProfiles(api_, device_->context(), device_->pd(), device_->path(), negotiate,
                              kDefaultQpn);
  }

  // As a device that accepts whatever it is offered.
  void AcceptAll() {
    static thread_local uint32_t last;
    api_.set_ece = [](ibv_qp* qp, ibv_ece* ece) {
      last = ece->options;
      ibv_ece known = {.vendor_id = kVendor, .options = 1, .comp_mask = 0};
      return softdc::Verbs().set_ece(qp, &known);
    };
    api_.query_ece = [](ibv_qp*, ibv_ece* ece) {
      *ece = {.vendor_id = kVendor, .options = last, .comp_mask = 0};
      return 0;
    };
  }
  static ibv_ece Offer(uint32_t options) {
    return {.vendor_id = kVendor, .options = options, .comp_mask = 0};
  }

  verbs::VerbsApi api_;
  std::unique_ptr<device::Device> device_;
};

TEST_F(CongestionProfilesTest, OfferIsSetInInitAndWhatWasAcceptedComesBackOnATemplateOfItsOwn) {
  CongestionProfiles profiles = Make();
  const Profile* profile = profiles.Of({.vendor_id = kVendor, .options = 0x1, .comp_mask = 0});
  EXPECT_EQ(profile->why_default, "");
  EXPECT_EQ(profile->accepted.vendor_id, kVendor);
  EXPECT_EQ(profile->accepted.options, 0x1u);
  EXPECT_NE(profile->template_qpn, kDefaultQpn);
  EXPECT_THAT(calls.options_set, ::testing::ElementsAre(0x1u));
  EXPECT_TRUE(calls.set_in_init_only);
}

TEST_F(CongestionProfilesTest, SameOfferIsNegotiatedOnce) {
  CongestionProfiles profiles = Make();
  const ibv_ece offer = {.vendor_id = kVendor, .options = 0x2, .comp_mask = 0};
  EXPECT_EQ(profiles.Of(offer), profiles.Of(offer));
  EXPECT_EQ(calls.options_set.size(), 1u);
  EXPECT_EQ(profiles.templates(), 1u);
}

TEST_F(CongestionProfilesTest, OffersThatEndInTheSameOptionsShareATemplate) {
  CongestionProfiles profiles = Make();
  const Profile* one = profiles.Of({.vendor_id = kVendor, .options = 0x1, .comp_mask = 0});
  // A bit that the device does not have is cut off.
  const Profile* other = profiles.Of({.vendor_id = kVendor, .options = 0x101, .comp_mask = 0});
  EXPECT_EQ(one, other);
  EXPECT_EQ(profiles.templates(), 1u);
  const Profile* third = profiles.Of({.vendor_id = kVendor, .options = 0x2, .comp_mask = 0});
  EXPECT_NE(third->template_qpn, one->template_qpn);
  EXPECT_EQ(profiles.templates(), 2u);
}

TEST_F(CongestionProfilesTest, WithoutAgreementTheDefaultSaysWhy) {
  CongestionProfiles profiles = Make();
  const Profile* none = profiles.Of({});
  EXPECT_EQ(none->template_qpn, kDefaultQpn);
  EXPECT_EQ(none->accepted.vendor_id, 0u);
  EXPECT_THAT(none->why_default, HasSubstr("offered no ECE"));
  EXPECT_THAT(profiles.Of({.vendor_id = 0xabc, .options = 1, .comp_mask = 0})->why_default,
              HasSubstr("ibv_set_ece"));
  EXPECT_THAT(profiles.Of({.vendor_id = kVendor, .options = 0x100, .comp_mask = 0})->why_default,
              HasSubstr("none of the options"));
  EXPECT_EQ(profiles.templates(), 0u);
}

TEST_F(CongestionProfilesTest, DeviceWithoutEceIsNotAskedAtAll) {
  CongestionProfiles profiles = Make(/*negotiate=*/false);
  const Profile* profile = profiles.Of({.vendor_id = kVendor, .options = 1, .comp_mask = 0});
  EXPECT_EQ(profile->template_qpn, kDefaultQpn);
  EXPECT_THAT(profile->why_default, HasSubstr("no ECE"));
  EXPECT_TRUE(calls.options_set.empty());
}

TEST_F(CongestionProfilesTest, FailureOfTheDeviceIsNotRemembered) {
  CongestionProfiles profiles = Make();
  const ibv_ece offer = {.vendor_id = kVendor, .options = 0x1, .comp_mask = 0};
  calls.query_error = EIO;
  EXPECT_THAT(profiles.Of(offer)->why_default, HasSubstr("ibv_query_ece"));
  calls.query_error = 0;
  EXPECT_EQ(profiles.Of(offer)->why_default, "");
}

TEST_F(CongestionProfilesTest, TemplatesAreBounded) {
  AcceptAll();
  CongestionProfiles profiles = Make();
  std::set<uint32_t> numbers;
  for (uint32_t options = 1; options <= CongestionProfiles::kMaxTemplates; ++options) {
    numbers.insert(
        profiles.Of({.vendor_id = kVendor, .options = options, .comp_mask = 0})->template_qpn);
  }
  EXPECT_EQ(numbers.size(), CongestionProfiles::kMaxTemplates);
  const Profile* beyond = profiles.Of({.vendor_id = kVendor, .options = 999, .comp_mask = 0});
  EXPECT_EQ(beyond->template_qpn, kDefaultQpn);
  EXPECT_THAT(beyond->why_default, HasSubstr("template DCIs are in use"));
  // Those who have one keep it.
  EXPECT_EQ(profiles.Of({.vendor_id = kVendor, .options = 3, .comp_mask = 0})->why_default, "");
}

// Sixteen peers that have gone keep nobody from a template of his own.
TEST_F(CongestionProfilesTest, TemplatesThatNobodyUsesMakeRoomTheOneUnusedLongestFirst) {
  AcceptAll();
  CongestionProfiles profiles = Make();
  std::vector<uint32_t> gone;
  profiles.OnEvict([&](uint32_t number) { gone.push_back(number); });
  std::vector<const Profile*> taken;
  for (uint32_t options = 1; options <= CongestionProfiles::kMaxTemplates; ++options) {
    taken.push_back(profiles.Of(Offer(options)));
  }
  EXPECT_EQ(profiles.Of(Offer(3)), taken[2]);
  const uint32_t third = taken[2]->template_qpn, fifth = taken[4]->template_qpn;
  profiles.Release(taken[2]);
  EXPECT_NE(profiles.Of(Offer(100))->why_default, "") << "somebody has the third still";
  profiles.Release(taken[4]);
  profiles.Release(taken[2]);
  EXPECT_TRUE(gone.empty()) << "kept for the next";
  EXPECT_EQ(profiles.Of(Offer(100))->why_default, "");
  EXPECT_EQ(gone, (std::vector<uint32_t>{fifth}));
  EXPECT_EQ(profiles.templates(), CongestionProfiles::kMaxTemplates);
  EXPECT_EQ(profiles.Of(Offer(5))->why_default, "") << "in the place of the third";
  EXPECT_EQ(gone, (std::vector<uint32_t>{fifth, third}));
  EXPECT_NE(profiles.Of(Offer(3))->why_default, "");
  EXPECT_EQ(profiles.Of(Offer(1)), taken[0]);
}

TEST_F(CongestionProfilesTest, OffersThatAreRememberedAreBounded) {
  CongestionProfiles profiles = Make();
  const Profile* one = profiles.Of(Offer(1));
  for (uint32_t i = 1; i <= 1000; ++i) {
    EXPECT_EQ(profiles.Of(Offer(i << 8 | 1)), one);
    ASSERT_LE(profiles.offers(), CongestionProfiles::kMaxOffers);
  }
  EXPECT_EQ(profiles.templates(), 1u);
}

}  // namespace congestion_profiles_test
}  // namespace sluice::path

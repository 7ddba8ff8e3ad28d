// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/registration.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {
namespace registration_test {

class RegistrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = Verbs().get_device_list(nullptr);
    context_ = Verbs().open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    pd_ = Verbs().alloc_pd(context_);
  }
  void TearDown() override {
    EXPECT_EQ(Verbs().dealloc_pd(pd_), 0);
    EXPECT_EQ(Verbs().close_device(context_), 0);
    Verbs().free_device_list(list_);
  }

  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  char bytes_[64];
};

TEST_F(RegistrationTest, RegMrIova2LeavesOutFlagsThatADeviceMayIgnore) {
  ibv_mr* mr = RegMrIova2(pd_, bytes_, sizeof(bytes_), reinterpret_cast<uintptr_t>(bytes_),
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(mr->addr, bytes_);
  EXPECT_EQ(Verbs().dereg_mr(mr), 0);
}

TEST_F(RegistrationTest, RegMrIovaWithAnAddressOfItsOwnIsNotSupported) {
  errno = 0;
  EXPECT_EQ(RegMrIova(pd_, bytes_, sizeof(bytes_), 0, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace registration_test
}  // namespace sluice::softdc::preload

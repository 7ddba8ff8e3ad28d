// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/address_from_wc.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {
namespace address_from_wc_test {

constexpr uint8_t kPort = 1;

// From 10.1.2.3 to 127.0.0.1, type of service 0x20, 64 hops; the checksum is of this header.
constexpr uint8_t kIpv4Header[20] = {0x45, 0x20, 0x00, 0x44, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                     0,    0,    10,   1,    2,    3,    127,  0,    0,    1};

class AddressFromWcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = Verbs().get_device_list(nullptr);
    context_ = Verbs().open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    wc_.wc_flags = IBV_WC_GRH;
    wc_.sl = 3;
    ASSERT_EQ(Verbs().query_gid(context_, kPort, 0, &own_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(Verbs().close_device(context_), 0);
    Verbs().free_device_list(list_);
  }
  static ibv_grh Ipv4Grh() {
    uint8_t bytes[sizeof(ibv_grh)] = {};
    std::memcpy(bytes + 20, kIpv4Header, sizeof(kIpv4Header));
    uint32_t sum = 0;
    for (size_t i = 20; i < sizeof(bytes); i += 2) sum += uint32_t{bytes[i]} << 8 | bytes[i + 1];
    const uint32_t checksum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
    bytes[30] = static_cast<uint8_t>(checksum >> 8);
    bytes[31] = static_cast<uint8_t>(checksum);
    ibv_grh grh;
    std::memcpy(&grh, bytes, sizeof(grh));
    return grh;
  }

  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_wc wc_{};
  ibv_gid own_{};
  ibv_ah_attr attr_{};
};

TEST_F(AddressFromWcTest, InitAhFromWcOfAnIpv4HeaderAnswersItsSource) {
  ibv_grh grh = Ipv4Grh();
  ASSERT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), 0);
  const uint8_t source[6] = {0xff, 0xff, 10, 1, 2, 3};
  EXPECT_EQ(std::memcmp(attr_.grh.dgid.raw + 10, source, sizeof(source)), 0);
  EXPECT_EQ(attr_.grh.sgid_index, 0);
  EXPECT_EQ(attr_.grh.traffic_class, 0x20);
  EXPECT_EQ(attr_.grh.hop_limit, 64);
  EXPECT_EQ(attr_.is_global, 1);
  EXPECT_EQ(attr_.port_num, kPort);
  EXPECT_EQ(attr_.sl, 3);
}

TEST_F(AddressFromWcTest, InitAhFromWcOfAnIpv6HeaderAnswersItsSource) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28 | 0x12u << 20 | 0x54321);
  grh.hop_limit = 7;
  grh.dgid = own_;
  grh.sgid.raw[0] = 0xfd;
  ASSERT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), 0);
  EXPECT_EQ(attr_.grh.dgid.raw[0], 0xfd);
  EXPECT_EQ(attr_.grh.flow_label, 0x54321u);
  EXPECT_EQ(attr_.grh.traffic_class, 0x12);
  EXPECT_EQ(attr_.grh.hop_limit, 7);
}

TEST_F(AddressFromWcTest, InitAhFromWcRefusesBytesThatAreNoHeader) {
  ibv_grh grh{};
  EXPECT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), -1);
  EXPECT_EQ(errno, EINVAL);
  grh = Ipv4Grh();
  reinterpret_cast<uint8_t*>(&grh)[39] ^= 1;  // the checksum is wrong now
  EXPECT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), -1);
}

TEST_F(AddressFromWcTest, InitAhFromWcRefusesADestinationThatIsNotThisPort) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28);
  grh.dgid.raw[0] = 0x20;  // 2000::
  EXPECT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(AddressFromWcTest, InitAhFromWcWithoutAHeaderIsALocalAddress) {
  wc_.wc_flags = 0;
  wc_.slid = 17;
  ibv_grh grh{};
  ASSERT_EQ(InitAhFromWc(context_, kPort, &wc_, &grh, &attr_), 0);
  EXPECT_EQ(attr_.is_global, 0);
  EXPECT_EQ(attr_.dlid, 17);
}

TEST_F(AddressFromWcTest, CreateAhFromWcMakesAnAddressHandle) {
  ibv_pd* pd = Verbs().alloc_pd(context_);
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28);
  grh.dgid = grh.sgid = own_;
  ibv_ah* ah = CreateAhFromWc(pd, &wc_, &grh, kPort);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(Verbs().destroy_ah(ah), 0);
  grh.version_tclass_flow = 0;
  EXPECT_EQ(CreateAhFromWc(pd, &wc_, &grh, kPort), nullptr);
  EXPECT_EQ(Verbs().dealloc_pd(pd), 0);
}

}  // namespace address_from_wc_test
}  // namespace sluice::softdc::preload

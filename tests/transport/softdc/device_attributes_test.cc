// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/device_attributes.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace device_attributes_test {

// What the inlines of verbs.h call; they themselves would want libibverbs to fall back on.
const verbs_context& SlotsOf(const DcNode& node) { return *verbs_get_ctx(node.context); }

TEST(DeviceAttributes, LimitsAreThoseThatCreationKeeps) {
  DcNode node;
  ibv_device_attr attr{};
  ASSERT_EQ(QueryDevice(node.context, &attr), 0);
  ibv_cq* cq = CreateCq(node.context, attr.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(DestroyCq(cq), 0);
  EXPECT_EQ(CreateCq(node.context, attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = static_cast<uint32_t>(attr.max_srq_wr),
                   .max_sge = static_cast<uint32_t>(attr.max_srq_sge),
                   .srq_limit = 0};
  ibv_srq* srq = CreateSrq(node.pd, &srq_attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(DestroySrq(srq), 0);
  srq_attr.attr.max_wr = static_cast<uint32_t>(attr.max_srq_wr) + 1;
  EXPECT_EQ(CreateSrq(node.pd, &srq_attr), nullptr);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
}

TEST(DeviceAttributes, ExtendedQueryAgreesAndWritesNoMoreThanAsked) {
  DcNode node;
  ibv_device_attr plain{};
  ASSERT_EQ(QueryDevice(node.context, &plain), 0);
  ibv_device_attr_ex attr;
  std::memset(static_cast<void*>(&attr), 0xff, sizeof(attr));
  ASSERT_EQ(SlotsOf(node).query_device_ex(node.context, nullptr, &attr, sizeof(attr)), 0);
  EXPECT_EQ(attr.orig_attr.max_qp, plain.max_qp);
  EXPECT_EQ(attr.completion_timestamp_mask, UINT64_MAX);
  EXPECT_EQ(attr.hca_core_clock, 1'000'000u);
  EXPECT_EQ(attr.odp_caps.general_caps, uint64_t{IBV_ODP_SUPPORT});  // and not of everything
  EXPECT_EQ(attr.phys_port_cnt_ex, 1u);
  // An older program's shorter structure.
  std::memset(static_cast<void*>(&attr), 0xff, sizeof(attr));
  ASSERT_EQ(QueryDeviceEx(node.context, nullptr, &attr, sizeof(ibv_device_attr)), 0);
  EXPECT_EQ(attr.orig_attr.max_qp, plain.max_qp);
  EXPECT_EQ(attr.hca_core_clock, UINT64_MAX);
  EXPECT_EQ(QueryDeviceEx(node.context, nullptr, &attr, 8), EINVAL);
  const ibv_query_device_ex_input input{.comp_mask = 1};
  EXPECT_EQ(SlotsOf(node).query_device_ex(node.context, &input, &attr, sizeof(attr)), EINVAL);
}

TEST(DeviceAttributes, PortIsRoceAndNeedsAGrh) {
  DcNode node;
  ibv_port_attr port{};
  ASSERT_EQ(SlotsOf(node).query_port(node.context, 1, &port, sizeof(port)), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.flags, IBV_QPF_GRH_REQUIRED);
  EXPECT_EQ(port.lid, 0);
  EXPECT_GT(port.gid_tbl_len, 1);
  EXPECT_EQ(port.pkey_tbl_len, 1);
  EXPECT_EQ(SlotsOf(node).query_port(node.context, 0, &port, sizeof(port)), EINVAL);
  EXPECT_EQ(SlotsOf(node).query_port(node.context, 2, &port, sizeof(port)), EINVAL);
}

TEST(DeviceAttributes, ClockGoesForwardAndConverts) {
  DcNode node;
  ibv_values_ex first{}, second{};
  first.comp_mask = second.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(node.context, &first), 0);
  ASSERT_EQ(ibv_query_rt_values_ex(node.context, &second), 0);
  EXPECT_GT(first.raw_clock.tv_nsec, 0);
  EXPECT_GE(second.raw_clock.tv_nsec, first.raw_clock.tv_nsec);
  first.comp_mask = 1 << 4;
  EXPECT_EQ(ibv_query_rt_values_ex(node.context, &first), EINVAL);

  mlx5dv_clock_info info{};
  ASSERT_EQ(DvGetClockInfo(node.context, &info), 0);
  timespec before{};
  clock_gettime(CLOCK_REALTIME, &before);
  const uint64_t wall_ns = mlx5dv_ts_to_ns(&info, static_cast<uint64_t>(second.raw_clock.tv_nsec));
  const uint64_t now_ns =
      static_cast<uint64_t>(before.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(before.tv_nsec);
  EXPECT_LE(wall_ns, now_ns + 1'000'000);
}

TEST(DeviceAttributes, LimitsThatProgramsSizeTheirQueuesByAreAConnectxs) {
  DcNode node;
  ibv_device_attr attr{};
  ASSERT_EQ(QueryDevice(node.context, &attr), 0);
  EXPECT_EQ(attr.max_qp, 262'144);
  EXPECT_EQ(attr.max_qp_wr, 32'768);
  EXPECT_EQ(attr.max_sge, 30);
  EXPECT_EQ(attr.max_cqe, 4'194'303);
  EXPECT_EQ(attr.max_srq_sge, 31);
  EXPECT_EQ(attr.max_qp_rd_atom, 16);
  EXPECT_EQ(attr.max_pkeys, 128);
}

// The largest queue that there may be costs what is in it.
TEST(DeviceAttributes, LargestCompletionQueueWorks) {
  DcNode node;
  ibv_cq* cq = CreateCq(node.context, 4'194'303, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ResizeCq(cq, 16), 0);
  EXPECT_EQ(ResizeCq(cq, 4'194'303), 0);
  EXPECT_EQ(DestroyCq(cq), 0);
}

TEST(DeviceAttributes, EntrySizeOfTheEnvironmentIsChecked) {
  DcNode node;
  for (const char* size : {"64", "128", "100", "x"}) {
    ASSERT_EQ(setenv("MLX5_CQE_SIZE", size, 1), 0);
    errno = 0;
    ibv_cq* cq = CreateCq(node.context, 16, nullptr, nullptr, 0);
    const bool known = std::atoi(size) % 64 == 0 && std::atoi(size) != 0;
    EXPECT_EQ(cq != nullptr, known) << size;
    if (!known) {
      EXPECT_EQ(errno, EINVAL);
    }
    if (cq != nullptr) DestroyCq(cq);
  }
  // What an attribute says outweighs it.
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  mlx5dv_cq_init_attr dv{};
  dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  dv.cqe_size = 128;
  ibv_cq_ex* cq = DvCreateCq(node.context, &attr, &dv);
  EXPECT_NE(cq, nullptr);
  if (cq != nullptr) DestroyCq(ibv_cq_ex_to_cq(cq));
  EXPECT_EQ(unsetenv("MLX5_CQE_SIZE"), 0);
}

TEST(DeviceAttributes, PortHasNothingOfASwitch) {
  DcNode node;
  mlx5dv_port port;
  std::memset(&port, 0xff, sizeof(port));
  EXPECT_EQ(DvQueryPort(node.context, 1, &port, sizeof(port)), 0);
  EXPECT_EQ(port.flags, 0u);
  EXPECT_EQ(DvQueryPort(node.context, 2, &port, sizeof(port)), EINVAL);
}

TEST(DeviceAttributes, SrqNumbersDiffer) {
  DcNode a;
  ibv_srq_init_attr_ex attr{};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ;
  attr.srq_type = IBV_SRQT_BASIC;
  attr.attr = {.max_wr = 5, .max_sge = 1, .srq_limit = 0};
  attr.pd = a.pd;
  ibv_srq* srq = SlotsOf(a).create_srq_ex(a.context, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(attr.attr.max_wr, 8u);  // rounded up, and said so
  uint32_t first = 0, second = 0;
  EXPECT_EQ(ibv_get_srq_num(a.srq, &first), 0);
  EXPECT_EQ(ibv_get_srq_num(srq, &second), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(DestroySrq(srq), 0);
}

TEST(DeviceAttributes, KeyTable) {
  DcNode node;
  __be16 pkey = 0;
  EXPECT_EQ(QueryPkey(node.context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(QueryPkey(node.context, 1, 1, &pkey), -1);
  EXPECT_EQ(QueryPkey(node.context, 2, 0, &pkey), -1);
}

}  // namespace device_attributes_test
}  // namespace sluice::softdc

// SPDX-License-Identifier: Apache-2.0
//
// Bad use of each object: the errno that the driver gives, and nothing else happens.
#include <sys/mman.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/device.h"
#include "transport/softdc/device_attributes.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace bad_use_test {

// True: the call returned null and left this errno.
template <typename Call>
bool Refuses(int error, Call call) {
  errno = 0;
  return call() == nullptr && errno == error;
}

TEST(BadUse, NullHandlesAreInvalid) {
  DcNode node;
  ibv_srq_init_attr srq_attr{};
  ibv_srq_attr srq_only{};
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_TRUE(Refuses(EINVAL, [] { return OpenDevice(nullptr); }));
  EXPECT_EQ(CloseDevice(nullptr), EINVAL);
  EXPECT_TRUE(Refuses(EINVAL, [] { return AllocPd(nullptr); }));
  EXPECT_EQ(DeallocPd(nullptr), EINVAL);
  EXPECT_TRUE(Refuses(EINVAL, [&] { return RegMr(nullptr, node.slab, 64, 0); }));
  EXPECT_EQ(DeregMr(nullptr), EINVAL);
  EXPECT_TRUE(Refuses(EINVAL, [] { return AllocMw(nullptr, IBV_MW_TYPE_2); }));
  EXPECT_EQ(DeallocMw(nullptr), EINVAL);
  EXPECT_TRUE(Refuses(EINVAL, [] { return CreateCompChannel(nullptr); }));
  EXPECT_EQ(DestroyCompChannel(nullptr), EINVAL);
  EXPECT_TRUE(Refuses(EINVAL, [] { return CreateCq(nullptr, 1, nullptr, nullptr, 0); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCqEx(node.context, nullptr); }));
  EXPECT_EQ(ResizeCq(nullptr, 1), EINVAL);
  EXPECT_EQ(DestroyCq(nullptr), EINVAL);
  EXPECT_EQ(GetCqEvent(nullptr, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EINVAL);
  AckCqEvents(nullptr, 1);
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrq(nullptr, &srq_attr); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrq(node.pd, nullptr); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrqEx(node.context, nullptr); }));
  EXPECT_EQ(ModifySrq(nullptr, &srq_only, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ModifySrq(node.srq, nullptr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(QuerySrq(nullptr, &srq_only), EINVAL);
  EXPECT_EQ(QuerySrq(node.srq, nullptr), EINVAL);
  EXPECT_EQ(DestroySrq(nullptr), EINVAL);
  EXPECT_EQ(GetAsyncEvent(nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  AckAsyncEvent(nullptr);
  EXPECT_EQ(QueryPort(node.context, 1, nullptr), EINVAL);
  EXPECT_EQ(QueryDevice(node.context, nullptr), EINVAL);
}

TEST(BadUse, ObjectsOfAnotherContextAreInvalid) {
  DcNode a({.channel = true}), b;
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCq(b.context, 4, nullptr, a.channel, 0); }));
  ibv_srq_init_attr_ex srq_attr{};
  srq_attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  srq_attr.srq_type = IBV_SRQT_BASIC;
  srq_attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  srq_attr.pd = a.pd;
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrqEx(b.context, &srq_attr); }));
  ibv_parent_domain_init_attr domain{};
  domain.pd = a.pd;
  EXPECT_TRUE(Refuses(EINVAL, [&] { return AllocParentDomain(b.context, &domain); }));
  errno = 0;
  EXPECT_EQ(ReregMr(a.mr, IBV_REREG_MR_CHANGE_PD, b.pd, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
}

TEST(BadUse, RegistrationOutOfRange) {
  DcNode node;
  const auto refuses = [&](int error, void* address, size_t length, int access) {
    return Refuses(error, [&] { return RegMr(node.pd, address, length, access); });
  };
  EXPECT_TRUE(refuses(EINVAL, node.slab, 0, 0));
  EXPECT_TRUE(refuses(EINVAL, node.slab, 64, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_TRUE(refuses(EINVAL, node.slab, 64, IBV_ACCESS_REMOTE_ATOMIC));
  EXPECT_TRUE(refuses(EINVAL, node.slab, SIZE_MAX, 0));
  EXPECT_TRUE(refuses(EOPNOTSUPP, node.slab, 64, IBV_ACCESS_HUGETLB));
  void* unmapped = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(unmapped, 4096);
  EXPECT_TRUE(refuses(EFAULT, unmapped, 4096, IBV_ACCESS_LOCAL_WRITE));
}

TEST(BadUse, QueueSizesOutOfRange) {
  DcNode node;
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCq(node.context, 0, nullptr, nullptr, 0); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCq(node.context, -5, nullptr, nullptr, 0); }));
  EXPECT_TRUE(
      Refuses(EINVAL, [&] { return CreateCq(node.context, 1 << 30, nullptr, nullptr, 0); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCq(node.context, 4, nullptr, nullptr, -1); }));
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateCq(node.context, 4, nullptr, nullptr, 9999); }));
  EXPECT_EQ(ResizeCq(node.send_cq, 0), EINVAL);
  EXPECT_EQ(ResizeCq(node.send_cq, 1 << 30), EINVAL);
  const auto refuses = [&](uint32_t max_wr, uint32_t max_sge) {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = max_wr, .max_sge = max_sge, .srq_limit = 0};
    return Refuses(EINVAL, [&] { return CreateSrq(node.pd, &attr); });
  };
  EXPECT_TRUE(refuses(0, 1));
  EXPECT_TRUE(refuses(1u << 30, 1));
  EXPECT_TRUE(refuses(4, 0));
  EXPECT_TRUE(refuses(4, 1000));
}

TEST(BadUse, SrqTypesThatTheDeviceHasNot) {
  DcNode node;
  ibv_srq_init_attr_ex attr{};
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  attr.attr = {.max_wr = 4, .max_sge = 1, .srq_limit = 0};
  attr.pd = node.pd;
  attr.srq_type = IBV_SRQT_XRC;
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return CreateSrqEx(node.context, &attr); }));
  attr.srq_type = IBV_SRQT_TM;
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return CreateSrqEx(node.context, &attr); }));
  attr.srq_type = static_cast<ibv_srq_type>(77);
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrqEx(node.context, &attr); }));
  attr.srq_type = IBV_SRQT_BASIC;
  attr.comp_mask |= 1u << 20;
  EXPECT_TRUE(Refuses(ENOSYS, [&] { return CreateSrqEx(node.context, &attr); }));
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  EXPECT_TRUE(Refuses(EINVAL, [&] { return CreateSrqEx(node.context, &attr); }));
}

TEST(BadUse, ReceivesThatDoNotFit) {
  DcNode node({.receives = 0});
  ibv_srq_attr attr{};
  ASSERT_EQ(QuerySrq(node.srq, &attr), 0);
  ibv_sge sges[3] = {};
  ibv_recv_wr second{}, first{.wr_id = 1, .next = &second, .sg_list = sges, .num_sge = 1};
  second.sg_list = sges;
  second.num_sge = static_cast<int>(attr.max_sge) + 1;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  second.num_sge = -1;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &second, &bad), EINVAL);
  // The first one stayed posted.
  node.PostReceives(attr.max_wr - 1);
  first.next = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(node.srq, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &first);
}

TEST(BadUse, ReregistrationSaysWhatWasWrongWithItsInput) {
  DcNode node;
  const uint32_t key = node.mr->lkey;
  const auto refuses = [&](int flags, void* address, size_t length, int access) {
    errno = 0;
    return ReregMr(node.mr, flags, node.pd, address, length, access) == IBV_REREG_MR_ERR_INPUT &&
           errno == EINVAL;
  };
  EXPECT_TRUE(refuses(0, nullptr, 0, 0));
  EXPECT_TRUE(refuses(1 << 9, nullptr, 0, 0));
  EXPECT_TRUE(refuses(IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, 64, 0));
  EXPECT_TRUE(refuses(IBV_REREG_MR_CHANGE_TRANSLATION, node.slab, 0, 0));
  EXPECT_TRUE(refuses(IBV_REREG_MR_CHANGE_PD, nullptr, 0, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_EQ(node.mr->lkey, key);
}

// What the device has not says so by itself: no slot, no crash.
TEST(BadUse, UnsupportedVerbsSaySo) {
  DcNode node;
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return ibv_alloc_null_mr(node.pd); }));
  ibv_alloc_dm_attr dm{};
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return ibv_alloc_dm(node.context, &dm); }));
  ibv_wq_init_attr wq{};
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return ibv_create_wq(node.context, &wq); }));
  ibv_counters_init_attr counters{};
  EXPECT_TRUE(Refuses(EOPNOTSUPP, [&] { return ibv_create_counters(node.context, &counters); }));
  ibv_sge sge{};
  EXPECT_EQ(ibv_advise_mr(node.pd, static_cast<ibv_advise_mr_advice>(99), 0, &sge, 1), EOPNOTSUPP);
}

}  // namespace bad_use_test
}  // namespace sluice::softdc

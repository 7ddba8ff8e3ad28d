// SPDX-License-Identifier: Apache-2.0
//
// The pool over a table made for the test: VerbsApi is plain function pointers.
#include "transport/cm/qpn_pool.h"

#include <cerrno>
#include <set>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace qpn_pool_test {

struct FakeDevice {
  uint32_t next_qpn = 100;
  int refuse_with = 0;
  int refuse_reservation_with = 0;
  std::set<uint32_t> reserved;
  int dummies = 0;
  ibv_context context = {};
  ibv_cq cq = {};
} device;

verbs::VerbsApi FakeTable() {
  device = {};
  verbs::VerbsApi api = {};
  api.name = "fake";
  api.dv_reserved_qpn_alloc = [](ibv_context*, uint32_t* qpn) {
    if (device.refuse_with != 0) return device.refuse_with;
    if (device.refuse_reservation_with != 0) return device.refuse_reservation_with;
    *qpn = device.next_qpn++;
    device.reserved.insert(*qpn);
    return 0;
  };
  api.dv_reserved_qpn_dealloc = [](ibv_context*, uint32_t qpn) {
    return device.reserved.erase(qpn) == 1 ? 0 : EINVAL;
  };
  api.create_cq = [](ibv_context*, int, void*, ibv_comp_channel*, int) { return &device.cq; };
  api.destroy_cq = [](ibv_cq*) { return 0; };
  // As a device without DC has it (soft RoCE): no mlx5dv_create_qp here.
  api.create_qp = [](ibv_pd*, ibv_qp_init_attr* attr) {
    if (device.refuse_with != 0 || attr->qp_type != IBV_QPT_RC) {
      errno = device.refuse_with != 0 ? device.refuse_with : EOPNOTSUPP;
      return static_cast<ibv_qp*>(nullptr);
    }
    ++device.dummies;
    auto* qp = new ibv_qp();
    qp->qp_num = device.next_qpn++;
    return qp;
  };
  api.destroy_qp = [](ibv_qp* qp) {
    --device.dummies;
    delete qp;
    return 0;
  };
  return api;
}

TEST(QpnPoolTake, ReservedNumbersAreFreshAndGoBack) {
  const verbs::VerbsApi api = FakeTable();
  {
    QpnPool pool(api, &device.context, nullptr, /*reserve=*/true);
    const auto a = pool.Take();
    const auto b = pool.Take();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_NE(*a, *b);
    pool.Give(*a);
    EXPECT_EQ(device.reserved, std::set<uint32_t>{*b});
    EXPECT_EQ(pool.in_use(), 1u);
  }
  EXPECT_TRUE(device.reserved.empty());  // the rest goes back with the pool
}

TEST(QpnPoolTake, RefusalSaysWhy) {
  const verbs::VerbsApi api = FakeTable();
  QpnPool pool(api, &device.context, nullptr, /*reserve=*/true);
  device.refuse_with = ENOMEM;
  const auto qpn = pool.Take();
  EXPECT_EQ(qpn.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.exhausted(), 1u);
  EXPECT_NE(qpn.status().message().find("mlx5dv_reserved_qpn_alloc failed with ENOMEM"),
            absl::string_view::npos);
}

// A driver may know the call and its firmware not (EOPNOTSUPP).
TEST(QpnPoolTake, RefusedReservationFallsBackToDummies) {
  const verbs::VerbsApi api = FakeTable();
  QpnPool pool(api, &device.context, nullptr, /*reserve=*/true);
  const auto reserved = pool.Take();
  ASSERT_TRUE(reserved.ok());
  device.refuse_reservation_with = EOPNOTSUPP;
  const auto dummy = pool.Take();
  ASSERT_TRUE(dummy.ok()) << dummy.status();
  EXPECT_EQ(device.dummies, 1);
  EXPECT_EQ(pool.in_use(), 2u);
  pool.Give(*dummy);
  pool.Give(*reserved);
  EXPECT_EQ(device.dummies, 0);
  EXPECT_TRUE(device.reserved.empty());
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(QpnPoolGive, NumberOfNobodyChangesNothing) {
  const verbs::VerbsApi api = FakeTable();
  QpnPool pool(api, &device.context, nullptr, /*reserve=*/true);
  ASSERT_TRUE(pool.Take().ok());
  pool.Give(7);
  EXPECT_EQ(pool.in_use(), 1u);
}

TEST(QpnPoolTake, DummyQpsWhereNothingCanBeReservedUpToTheBound) {
  const verbs::VerbsApi api = FakeTable();
  {
    QpnPool pool(api, &device.context, nullptr, /*reserve=*/false);
    std::set<uint32_t> numbers;
    for (size_t i = 0; i < QpnPool::kMaxDummies; ++i) {
      const auto qpn = pool.Take();
      ASSERT_TRUE(qpn.ok());
      EXPECT_TRUE(numbers.insert(*qpn).second);
    }
    EXPECT_EQ(pool.Take().status().code(), absl::StatusCode::kResourceExhausted);
    pool.Give(*numbers.begin());
    EXPECT_TRUE(pool.Take().ok());
  }
  EXPECT_EQ(device.dummies, 0);
}

}  // namespace qpn_pool_test
}  // namespace sluice::cm

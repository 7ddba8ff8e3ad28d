// SPDX-License-Identifier: Apache-2.0
//
// Over a table made for the test: it counts handles and mappings.
#include "transport/path/address_handles.h"

#include <cerrno>
#include <map>

#include "gtest/gtest.h"

namespace sluice::path {
namespace {

struct FakeDevice {
  std::map<ibv_ah*, uint32_t> handles;  // and what each is mapped to
  int map_result = 0;
  bool refuse = false;
} device;

verbs::VerbsApi FakeTable() {
  device = {};
  verbs::VerbsApi api = {};
  api.create_ah = [](ibv_pd*, ibv_ah_attr*) {
    if (device.refuse) {
      errno = ETIMEDOUT;
      return static_cast<ibv_ah*>(nullptr);
    }
    auto* handle = new ibv_ah();
    device.handles[handle] = 0;
    return handle;
  };
  api.destroy_ah = [](ibv_ah* handle) {
    device.handles.erase(handle);
    delete handle;
    return 0;
  };
  api.dv_map_ah_to_qp = [](ibv_ah* handle, uint32_t qpn) {
    if (device.map_result == 0) device.handles[handle] = qpn;
    return device.map_result;
  };
  return api;
}

ibv_ah_attr To(uint8_t host) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid.raw[15] = host;
  return attr;
}

TEST(AddressHandlesAcquire, OneHandlePerDestinationMappedOnce) {
  const verbs::VerbsApi api = FakeTable();
  AddressHandles handles(api, nullptr, /*map=*/true);
  const auto a = handles.Acquire(To(1), 77);
  const auto again = handles.Acquire(To(1), 77);
  const auto b = handles.Acquire(To(2), 77);
  ASSERT_TRUE(a.ok() && again.ok() && b.ok());
  EXPECT_EQ(a->handle, again->handle);
  EXPECT_NE(a->handle, b->handle);
  EXPECT_TRUE(a->first && a->mapped);
  EXPECT_TRUE(!again->first && again->mapped);
  EXPECT_EQ(device.handles.size(), 2u);
  EXPECT_EQ(device.handles[a->handle], 77u);
  EXPECT_EQ(handles.mapped(), 2u);
  handles.Release(a->handle);
  EXPECT_EQ(device.handles.size(), 2u);
  handles.Release(a->handle);
  EXPECT_EQ(device.handles.size(), 1u);
  handles.Release(b->handle);
  EXPECT_TRUE(device.handles.empty());
}

TEST(AddressHandlesAcquire, AnotherTemplateIsAnotherHandle) {
  const verbs::VerbsApi api = FakeTable();
  AddressHandles handles(api, nullptr, /*map=*/true);
  const auto a = handles.Acquire(To(1), 77);
  const auto b = handles.Acquire(To(1), 78);
  EXPECT_NE(a->handle, b->handle);
  EXPECT_EQ(device.handles[b->handle], 78u);
  handles.Release(a->handle);
  handles.Release(b->handle);
}

TEST(AddressHandlesAcquire, MappingIsAHintAndItsFailureIsCounted) {
  const verbs::VerbsApi api = FakeTable();
  device.map_result = EOPNOTSUPP;
  AddressHandles handles(api, nullptr, /*map=*/true);
  const auto a = handles.Acquire(To(1), 77);
  ASSERT_TRUE(a.ok());
  EXPECT_FALSE(a->mapped);
  EXPECT_EQ(handles.unmapped(), 1u);
  EXPECT_EQ(handles.mapped(), 0u);
  handles.Release(a->handle);
}

TEST(AddressHandlesAcquire, RefusalSaysWhy) {
  const verbs::VerbsApi api = FakeTable();
  device.refuse = true;
  AddressHandles handles(api, nullptr, /*map=*/true);
  const auto a = handles.Acquire(To(1), 77);
  EXPECT_EQ(a.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(a.status().message().find("ibv_create_ah failed with ETIMEDOUT"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace sluice::path

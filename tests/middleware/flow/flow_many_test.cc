// SPDX-License-Identifier: Apache-2.0
//
// A hundred thousand flows between two ends: what an idle one takes, and that messages allocate nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/middleware/flow/flow_fixture.h"

namespace {
// One thread.
uint64_t allocations = 0;
int64_t held_bytes = 0;
constexpr size_t kFront = alignof(std::max_align_t);
}  // namespace

// All of them, so that sanitizers, which have their own, agree about what is whose.
void* operator new(size_t size) {
  ++allocations;
  held_bytes += static_cast<int64_t>(size);
  auto* front = static_cast<char*>(std::malloc(size + kFront));
  if (front == nullptr) std::abort();
  *reinterpret_cast<size_t*>(front) = size;
  return front + kFront;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void operator delete(void* at) noexcept {
  if (at == nullptr) return;
  char* front = static_cast<char*>(at) - kFront;
  held_bytes -= static_cast<int64_t>(*reinterpret_cast<size_t*>(front));
  std::free(front);
}
void operator delete[](void* at) noexcept { operator delete(at); }
void operator delete(void* at, size_t) noexcept { operator delete(at); }
void operator delete[](void* at, size_t) noexcept { operator delete(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { operator delete(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { operator delete(at); }

namespace sluice::flow {
namespace {

constexpr int kFlows = 100'000;

struct Sum final : FlowHandler {
  void OnOpen(Flow flow) override { flows.push_back(flow); }
  void OnMessage(Flow, std::span<const std::byte>) override { ++heard; }
  void OnClosed(Flow, const absl::Status& why, const FlowTotals&) override {
    EXPECT_TRUE(why.ok()) << why;
    ++closed;
  }
  std::vector<Flow> flows;
  int heard = 0;
  int closed = 0;
};

TEST(FlowManyTest, HundredThousandFlowsAreOpenedUsedAndClosed) {
  ManualClock clock;
  FakeNetwork network;
  Node a(&network, &clock);
  Node b(&network, &clock);
  Sum here;
  Sum there;
  here.flows.reserve(kFlows);
  ASSERT_TRUE(b.endpoint->Listen("b", 1).ok());
  ASSERT_TRUE(b.engine.Accept("end", {}, [&](Flow, const Offer&) { return &there; }).ok());
  const auto settle = [&] {
    for (int quiet = 0; quiet < 3;) {
      quiet = a.engine.Poll() + b.engine.Poll() > 0 ? 0 : quiet + 1;
    }
  };
  const auto open = [&](int flows) {
    for (int i = 0; i < flows; ++i) ASSERT_TRUE(a.engine.Open("b", 1, "end", {}, &here).ok());
    settle();
  };
  open(1);
  const int64_t before = held_bytes;
  // In steps, so that the names of those that wait to be said are not counted.
  for (int opened = 1; opened < kFlows; opened += 1000) open(std::min(1000, kFlows - opened));
  ASSERT_EQ(here.flows.size(), static_cast<size_t>(kFlows));
  const double per_flow = static_cast<double>(held_bytes - before) / (2.0 * kFlows);
  RecordProperty("bytes_per_idle_flow_and_end", static_cast<int>(per_flow));
  EXPECT_GE(per_flow, kIdleFlowBytes - 1);
  EXPECT_LE(per_flow, kIdleFlowBytes + 2) << "something grows with flows, beside the table";

  for (const Flow& flow : here.flows) {
    while (!flow.Send(BytesOf("x")).ok()) settle();
  }
  settle();
  EXPECT_EQ(there.heard, kFlows);

  for (const Flow& flow : here.flows) flow.Close();
  settle();
  EXPECT_EQ(here.closed, kFlows);
  EXPECT_EQ(there.closed, kFlows);
  EXPECT_EQ(a.engine.flows() + b.engine.flows(), 0u);
}

// The fake network allocates for every message; sessions alone over it are what flows are compared with.
struct Plain final : session::User {
  void OnPeerUp(endpoint::PeerId id, const endpoint::PeerInfo&) override { peer = id; }
  void OnPeerDown(endpoint::PeerId, const absl::Status&) override {}
  void OnMessage(endpoint::PeerId, const frame::Header&, std::span<const std::byte>) override {}
  void OnWritable(endpoint::PeerId) override {}
  void OnProtocolError(endpoint::PeerId, std::string_view, std::string_view) override {}
  session::Sessions sessions{this};
  endpoint::PeerId peer;
};

template <typename Send, typename Poll>
uint64_t AllocationsOf(Send send, Poll poll) {
  const auto exchange = [&] {
    for (int round = 0; round < 500; ++round) {
      for (int i = 0; i < 8; ++i) send();
      for (int i = 0; i < 3; ++i) poll();
    }
  };
  exchange();
  const uint64_t before = allocations;
  exchange();
  return allocations - before;
}

TEST(FlowManyTest, MessagesAllocateNothing) {
  ManualClock clock;
  FakeNetwork network;
  uint64_t plain = 0;
  {
    Plain here;
    Plain there;
    auto a = network.Create(&here.sessions, &clock);
    auto b = network.Create(&there.sessions, &clock);
    here.sessions.Attach(a.get());
    there.sessions.Attach(b.get());
    ASSERT_TRUE(b->Listen("b", 2).ok());
    ASSERT_TRUE(a->Connect("b", 2, INT64_MAX).ok());
    const auto poll = [&] {
      a->Poll();
      b->Poll();
    };
    poll();
    poll();
    const auto say = [](Plain& from) {
      auto buffer = from.sessions.Reserve(from.peer, 8);
      ASSERT_TRUE(buffer.ok());
      frame::Header header;
      header.method_id = 1;
      header.payload_bytes = 8;
      from.sessions.Commit(from.peer, *buffer, header);
    };
    plain = AllocationsOf(
        [&] {
          say(here);
          say(there);
        },
        poll);
  }
  Node a(&network, &clock);
  Node b(&network, &clock);
  Sum here;
  Sum there;
  Flow back;
  ASSERT_TRUE(b.endpoint->Listen("b", 1).ok());
  ASSERT_TRUE(b.engine
                  .Accept("end", {},
                          [&](Flow flow, const Offer&) {
                            back = flow;
                            return &there;
                          })
                  .ok());
  ASSERT_TRUE(a.engine.Open("b", 1, "end", {.report_delivery = true}, &here).ok());
  const auto poll = [&] {
    a.engine.Poll();
    b.engine.Poll();
  };
  for (int i = 0; i < 5; ++i) poll();
  ASSERT_EQ(here.flows.size(), 1u);
  const std::string text = "8 bytes.";
  // Both ways, so that windows ride on messages.
  const uint64_t flows = AllocationsOf(
      [&] {
        ASSERT_TRUE(here.flows[0].Send(BytesOf(text)).ok());
        ASSERT_TRUE(back.Send(BytesOf(text)).ok());
      },
      poll);
  EXPECT_EQ(there.heard, 8000);
  EXPECT_GT(plain, 0u) << "nothing is counted";
  EXPECT_LE(flows, plain);
}

}  // namespace
}  // namespace sluice::flow

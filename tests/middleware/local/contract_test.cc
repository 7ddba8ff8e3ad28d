// SPDX-License-Identifier: Apache-2.0
//
// What endpoint.h promises, asked of both who keep it: the endpoint over a device, and LocalEndpoint, on which all tests
// above stand.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/local/local_endpoint.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace {

constexpr uint32_t kMessageBytes = 256;
constexpr uint64_t kLargeBytes = 1 << 20;
constexpr int64_t kLongNs = 30'000'000'000;

// Everything that one side was told, in its order.
struct Diary final : Handler {
  void OnPeerUp(PeerId peer, const PeerInfo& info) override {
    Write(peer, info.inbound ? "up, inbound" : "up");
    id = peer;
    this->info = info;
  }
  void OnPeerDown(PeerId peer, const absl::Status& why) override {
    Write(peer, "down: " + std::string(absl::StatusCodeToString(why.code())));
    ++downs;
  }
  bool OnMessage(PeerId peer, std::span<const std::byte> bytes) override {
    Write(peer, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    if (on_message) on_message(peer);
    return true;
  }
  void OnWritable(PeerId) override { ++writable; }
  void OnAcknowledged(PeerId, uint32_t total) override { acknowledged = total; }
  void OnFetched(PeerId peer, const absl::StatusOr<LargeBuffer>& buffer, uint32_t number) override {
    Write(peer, "fetched: " + std::string(absl::StatusCodeToString(buffer.status().code())));
    fetched.emplace(number, buffer);
  }
  void Write(PeerId, const std::string& line) {
    EXPECT_EQ(downs, 0) << line << " after the end";
    lines.push_back(line);
  }

  std::vector<std::string> lines;
  std::function<void(PeerId)> on_message;
  std::map<uint32_t, absl::StatusOr<LargeBuffer>> fetched;
  PeerId id;
  PeerInfo info;
  int downs = 0;
  int writable = 0;
  uint32_t acknowledged = 0;
};

// Two endpoints on the software NIC. The first would send more than the second takes.
class OverADevice {
 public:
  OverADevice(Handler* a, Handler* b)
      : a_(Small(2 * kMessageBytes), &softdc::Verbs(), nullptr, a),
        b_(Small(kMessageBytes), &softdc::Verbs(), nullptr, b) {}
  Endpoint& a() { return *a_.endpoint; }
  Endpoint& b() { return *b_.endpoint; }
  int64_t now_ns() { return a_.clock.NowNs(); }
  void Until(const std::function<bool()>& done) { PollUntil({&a_, &b_}, done); }

 private:
  static Options Small(uint32_t message_bytes) {
    Options options;
    options.max_message_bytes = message_bytes;
    options.credits_per_peer = 8;
    options.max_large_bytes = kLargeBytes;
    options.large_memory_bytes = 4 * kLargeBytes;
    return options;
  }
  Node a_;
  Node b_;
};

class InOneProcess {
 public:
  InOneProcess(Handler* a, Handler* b)
      : a_(network_.Create(a, &clock_, Small(2 * kMessageBytes))),
        b_(network_.Create(b, &clock_, Small(kMessageBytes))) {}
  Endpoint& a() { return *a_; }
  Endpoint& b() { return *b_; }
  int64_t now_ns() { return clock_.NowNs(); }
  void Until(const std::function<bool()>& done) {
    while (!done()) {
      a_->Poll();
      b_->Poll();
    }
  }

 private:
  static local::LocalNetwork::Options Small(uint32_t message_bytes) {
    return {.max_message_bytes = message_bytes,
            .credits = 8,
            .max_large_bytes = kLargeBytes,
            .large_memory_bytes = 4 * kLargeBytes};
  }
  base::RealClock clock_;
  local::LocalNetwork network_;
  std::unique_ptr<local::LocalEndpoint> a_;
  std::unique_ptr<local::LocalEndpoint> b_;
};

template <typename World>
class EndpointContract : public ::testing::Test {
 protected:
  absl::StatusOr<PeerId> Dial() {
    return world_.a().Connect("127.0.0.1", port_, world_.now_ns() + kLongNs);
  }
  void Connect() {
    const auto port = world_.b().Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
    ASSERT_TRUE(Dial().ok());
    world_.Until([&] { return !a_.lines.empty() && !b_.lines.empty(); });
    ASSERT_EQ(a_.lines, std::vector<std::string>{"up"});
    ASSERT_EQ(b_.lines, std::vector<std::string>{"up, inbound"});
    a_.lines.clear();
    b_.lines.clear();
  }
  static absl::Status Send(Endpoint& endpoint, PeerId peer, const std::string& text) {
    const auto buffer = endpoint.Reserve(peer, static_cast<uint32_t>(text.size()));
    if (!buffer.ok()) return buffer.status();
    std::memcpy(buffer->data, text.data(), text.size());
    endpoint.Commit(peer, *buffer, static_cast<uint32_t>(text.size()), /*report_soon=*/true);
    endpoint.Release(buffer->slot);
    return absl::OkStatus();
  }
  // Of a, which b may fetch.
  LargeBuffer Lend(uint64_t bytes, RemoteMemory* where) {
    const auto lent = world_.a().Lend(a_.id, bytes, /*waits=*/true);
    EXPECT_TRUE(lent.ok()) << lent.status();
    std::memset(lent->data, 'x', bytes);
    world_.Until([&] { return world_.a().WhereLent(lent->number).has_value(); });
    *where = *world_.a().WhereLent(lent->number);
    where->bytes = bytes;
    return *lent;
  }
  absl::StatusCode Fetch(const RemoteMemory& where, uint32_t* number) {
    const auto fetch = world_.b().Fetch(b_.id, where);
    EXPECT_TRUE(fetch.ok()) << fetch.status();
    *number = fetch.value_or(0);
    world_.Until([&] { return b_.fetched.contains(*number); });
    return b_.fetched.at(*number).status().code();
  }

  Diary a_;
  Diary b_;
  World world_{&a_, &b_};
  uint16_t port_ = 0;
};

using Worlds = ::testing::Types<OverADevice, InOneProcess>;
TYPED_TEST_SUITE(EndpointContract, Worlds);

TYPED_TEST(EndpointContract, BothAreToldOfAConnectionAndItsLimits) {
  this->Connect();
  for (const Diary* side : {&this->a_, &this->b_}) {
    EXPECT_EQ(side->info.max_message_bytes, kMessageBytes);
    EXPECT_EQ(side->info.max_large_bytes, kLargeBytes);
  }
}

TYPED_TEST(EndpointContract, MessagesComeInTheirOrderAndAreAcknowledged) {
  this->Connect();
  for (const char* text : {"one", "two", "three"}) {
    ASSERT_TRUE(this->Send(this->world_.a(), this->a_.id, text).ok());
  }
  this->world_.Until([&] { return this->b_.lines.size() == 3; });
  EXPECT_EQ(this->b_.lines, (std::vector<std::string>{"one", "two", "three"}));
  // An acknowledgement rides on what comes from there, at the latest.
  ASSERT_TRUE(this->Send(this->world_.b(), this->b_.id, "thanks").ok());
  this->world_.Until([&] { return this->a_.acknowledged == 3 && !this->a_.lines.empty(); });
  EXPECT_EQ(this->a_.lines, std::vector<std::string>{"thanks"});
}

TYPED_TEST(EndpointContract, WrongSizesAndStrangersAreRefused) {
  this->Connect();
  Endpoint& a = this->world_.a();
  EXPECT_EQ(a.Reserve(this->a_.id, kMessageBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  const PeerId stranger{77, 1};
  EXPECT_EQ(a.Reserve(stranger, 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a.Lend(stranger, 1, true).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a.Fetch(stranger, {.bytes = 1}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a.Report(stranger).status().code(), absl::StatusCode::kUnavailable);
  a.Disconnect(stranger);
}

TYPED_TEST(EndpointContract, WhoFindsNoCreditIsToldWhenThereIsSome) {
  this->Connect();
  int sent = 0;
  absl::Status status;
  while ((status = this->Send(this->world_.a(), this->a_.id, "x")).ok()) ++sent;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(sent, 0);
  this->world_.Until([&] { return this->a_.writable > 0; });
  EXPECT_TRUE(this->Send(this->world_.a(), this->a_.id, "y").ok());
}

// What was committed comes before the end; each side is told once, this one in its next Poll().
TYPED_TEST(EndpointContract, DisconnectTellsBothSidesOnce) {
  this->Connect();
  Endpoint& a = this->world_.a();
  ASSERT_TRUE(this->Send(a, this->a_.id, "last words").ok());
  a.Disconnect(this->a_.id);
  EXPECT_TRUE(this->a_.lines.empty()) << "it is told in Poll() only";
  EXPECT_EQ(a.Reserve(this->a_.id, 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a.Lend(this->a_.id, 1, true).status().code(), absl::StatusCode::kUnavailable);
  a.Disconnect(this->a_.id);
  this->world_.Until([&] { return this->a_.downs > 0 && this->b_.downs > 0; });
  EXPECT_EQ(this->a_.lines, std::vector<std::string>{"down: CANCELLED"});
  EXPECT_EQ(this->b_.lines, (std::vector<std::string>{"last words", "down: UNAVAILABLE"}));
  a.Disconnect(this->a_.id);
  for (int i = 0; i < 100; ++i) {
    a.Poll();
    this->world_.b().Poll();
  }
}

TYPED_TEST(EndpointContract, DisconnectInsideAHandlerEndsWhatWasOnItsWay) {
  this->Connect();
  this->b_.on_message = [this](PeerId peer) { this->world_.b().Disconnect(peer); };
  for (const char* text : {"one", "two", "three"}) {
    ASSERT_TRUE(this->Send(this->world_.a(), this->a_.id, text).ok());
  }
  this->world_.a().Flush();
  this->world_.Until([&] { return this->a_.downs > 0 && this->b_.downs > 0; });
  EXPECT_EQ(this->b_.lines, (std::vector<std::string>{"one", "down: CANCELLED"}));
  EXPECT_EQ(this->a_.lines, std::vector<std::string>{"down: UNAVAILABLE"});
}

TYPED_TEST(EndpointContract, DisconnectOfAPeerThatNeverCameUp) {
  const auto port = this->world_.b().Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  this->port_ = *port;
  const auto peer = this->Dial();
  ASSERT_TRUE(peer.ok());
  this->world_.a().Disconnect(*peer);
  this->world_.Until([&] { return this->a_.downs > 0; });
  EXPECT_EQ(this->a_.lines, std::vector<std::string>{"down: CANCELLED"});
}

TYPED_TEST(EndpointContract, WhereNobodyListensAConnectEndsOnce) {
  this->port_ = 9;  // nobody's
  ASSERT_TRUE(this->Dial().ok());
  this->world_.Until([&] { return this->a_.downs > 0; });
  EXPECT_EQ(this->a_.lines, std::vector<std::string>{"down: UNAVAILABLE"});
}

TYPED_TEST(EndpointContract, AfterCloseOnlyTheOthersAreTold) {
  this->Connect();
  this->world_.a().Close();
  this->world_.Until([&] { return this->b_.downs > 0; });
  EXPECT_EQ(this->b_.lines, std::vector<std::string>{"down: UNAVAILABLE"});
  EXPECT_TRUE(this->a_.lines.empty());
}

TYPED_TEST(EndpointContract, LargeMemoryIsLentFetchedAndGivenBack) {
  this->Connect();
  RemoteMemory where;
  const LargeBuffer lent = this->Lend(kLargeBytes, &where);
  uint32_t number = 0;
  ASSERT_EQ(this->Fetch(where, &number), absl::StatusCode::kOk);
  const LargeBuffer& got = *this->b_.fetched.at(number);
  EXPECT_EQ(got.number, number);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data), got.bytes),
            std::string(kLargeBytes, 'x'));
  this->world_.b().GiveBack(number);
  this->world_.a().EndLoan(lent.number);
}

TYPED_TEST(EndpointContract, WhatCantBeFetchedIsRefused) {
  this->Connect();
  RemoteMemory where;
  const LargeBuffer lent = this->Lend(10'000, &where);
  Endpoint& b = this->world_.b();
  RemoteMemory wrong = where;
  wrong.bytes = 0;
  EXPECT_EQ(b.Fetch(this->b_.id, wrong).status().code(), absl::StatusCode::kInvalidArgument);
  wrong.bytes = kLargeBytes + 1;
  EXPECT_EQ(b.Fetch(this->b_.id, wrong).status().code(), absl::StatusCode::kInvalidArgument);
  wrong = where;
  wrong.key ^= 0x5a5a00;
  uint32_t number = 0;
  EXPECT_EQ(this->Fetch(wrong, &number), absl::StatusCode::kPermissionDenied);
  this->world_.a().EndLoan(lent.number);
}

// Whether it was cancelled or had ended: it is told of once.
TYPED_TEST(EndpointContract, ACancelledFetchEndsOnce) {
  this->Connect();
  RemoteMemory where;
  const LargeBuffer lent = this->Lend(kLargeBytes, &where);
  Endpoint& b = this->world_.b();
  const auto fetch = b.Fetch(this->b_.id, where);
  ASSERT_TRUE(fetch.ok());
  b.CancelFetch(*fetch);
  this->world_.Until([&] { return this->b_.fetched.contains(*fetch); });
  EXPECT_EQ(this->b_.lines, std::vector<std::string>{"fetched: CANCELLED"});
  this->world_.a().EndLoan(lent.number);
}

TYPED_TEST(EndpointContract, FetchesGoWithTheirPeer) {
  this->Connect();
  RemoteMemory where;
  const LargeBuffer lent = this->Lend(kLargeBytes, &where);
  Endpoint& b = this->world_.b();
  ASSERT_TRUE(b.Fetch(this->b_.id, where).ok());
  b.Disconnect(this->b_.id);
  this->world_.Until([&] { return this->a_.downs > 0 && this->b_.downs > 0; });
  EXPECT_EQ(this->b_.lines, std::vector<std::string>{"down: CANCELLED"});
  this->world_.a().EndLoan(lent.number);
}

}  // namespace
}  // namespace sluice::endpoint

// SPDX-License-Identifier: Apache-2.0
//
// Two endpoints in virtual time, of which one lends and the other fetches.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_LARGE_WORLD_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_LARGE_WORLD_H_

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/transport/endpoint/sim_endpoint.h"

namespace sluice::endpoint {

using softdc::sim::Simulation;

inline constexpr uint64_t kMiB = 1 << 20;

inline Options LargeOptions() {
  Options options = SimEndpointOptions();
  options.max_large_bytes = 8 * kMiB;
  options.large_memory_bytes = 16 * kMiB;
  return options;
}

struct LargeRecorder : Recorder {
  void OnLent(PeerId, uint32_t number, const absl::Status& status) override {
    lent[number] = status;
  }
  void OnFetched(PeerId, const absl::StatusOr<LargeBuffer>& buffer, uint32_t number) override {
    EXPECT_FALSE(fetched.contains(number)) << "told twice";
    fetched.emplace(number, buffer);
  }
  void OnWritable(PeerId peer) override {
    Recorder::OnWritable(peer);
    if (on_writable) on_writable(peer);
  }
  std::function<void(PeerId)> on_writable;
  std::map<uint32_t, absl::Status> lent;
  std::map<uint32_t, absl::StatusOr<LargeBuffer>> fetched;
};

inline std::byte At(uint64_t i) { return static_cast<std::byte>(i * 31 + (i >> 16)); }

class LargeWorld : public testing::Test {
 protected:
  void Start(const Options& options = LargeOptions(),
             const verbs::VerbsApi* table = &Simulation::Verbs(), softdc::sim::Options sim = {}) {
    sim.nodes = 3;
    simulation_ = std::move(*Simulation::Create(sim));
    lender_.emplace(*simulation_, 0, 1, options, &lender_saw_, table);
    reader_.emplace(*simulation_, 1, 1, options, &reader_saw_, table);
    lender_->Listen();
    ASSERT_TRUE(reader_->Connect(0).ok());
    ASSERT_TRUE(Run([&] { return lender_saw_.ups.size() + reader_saw_.ups.size() == 2; }));
    to_reader_ = lender_saw_.ups[0].id;
    to_lender_ = reader_saw_.ups[0].id;
  }
  ~LargeWorld() override {
    if (lender_.has_value() && lender_saw_.downs.empty())
      lender_->endpoint().Disconnect(to_reader_);
    if (reader_.has_value() && reader_saw_.downs.empty()) {
      Run([&] { return !reader_saw_.downs.empty(); }, 1'000'000'000);
    }
  }
  bool Run(const std::function<bool()>& done, int64_t limit_ns = 60'000'000'000) {
    if (!other_.has_value()) {
      return RunUntil(*simulation_, {&*lender_, &*reader_}, done, limit_ns);
    }
    return RunUntil(*simulation_, {&*lender_, &*reader_, &*other_}, done, limit_ns);
  }
  void RunFor(int64_t time_ns) {
    Run([] { return false; }, time_ns);
  }
  // Filled, and known to the device.
  std::optional<LargeBuffer> Lend(uint64_t bytes) {
    const Simulation::As as(*simulation_, 0);
    const auto buffer = lender_->endpoint().Lend(to_reader_, bytes, /*waits=*/true);
    if (!buffer.ok()) return std::nullopt;
    for (uint64_t i = 0; i < bytes; ++i) buffer->data[i] = At(i);
    EXPECT_TRUE(Run([&] { return lender_->endpoint().WhereLent(buffer->number).has_value(); }));
    return *buffer;
  }
  RemoteMemory Where(const LargeBuffer& buffer) {
    RemoteMemory where = *lender_->endpoint().WhereLent(buffer.number);
    where.bytes = buffer.bytes;
    return where;
  }
  uint32_t Fetch(const RemoteMemory& from) { return Fetch(to_lender_, from); }
  uint32_t Fetch(PeerId peer, const RemoteMemory& from) {
    const Simulation::As as(*simulation_, 1);
    const auto fetch = reader_->endpoint().Fetch(peer, from);
    EXPECT_TRUE(fetch.ok()) << fetch.status();
    return fetch.value_or(0xffffffff);
  }
  // A second lender, at node 2, and memory that it has lent to the reader.
  void StartSecondLender() {
    other_.emplace(*simulation_, 2, 1, LargeOptions());
    other_->Listen();
    ASSERT_TRUE(reader_->Connect(2).ok());
    ASSERT_TRUE(Run([&] { return reader_saw_.ups.size() == 2 && !other_->recorder.ups.empty(); }));
    to_second_ = reader_saw_.ups[1].id;
  }
  RemoteMemory LendFromSecond(uint64_t bytes) {
    const Simulation::As as(*simulation_, 2);
    const auto lent = other_->endpoint().Lend(other_->recorder.ups[0].id, bytes, /*waits=*/false);
    EXPECT_TRUE(lent.ok()) << lent.status();
    if (!lent.ok()) return {};
    EXPECT_TRUE(Run([&] { return other_->endpoint().WhereLent(lent->number).has_value(); }));
    RemoteMemory where = other_->endpoint().WhereLent(lent->number).value_or(RemoteMemory());
    where.bytes = lent->bytes;
    return where;
  }
  absl::Status End(uint32_t fetch) {
    EXPECT_TRUE(Run([&] { return reader_saw_.fetched.contains(fetch); })) << "it does not end";
    return reader_saw_.fetched.at(fetch).status();
  }
  void ExpectSame(uint32_t fetch, uint64_t bytes) {
    const auto& buffer = reader_saw_.fetched.at(fetch);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(buffer->bytes, bytes);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; ++i) wrong += buffer->data[i] != At(i);
    EXPECT_EQ(wrong, 0u);
  }
  void GiveBack(uint32_t fetch) {
    const Simulation::As as(*simulation_, 1);
    reader_->endpoint().GiveBack(fetch);
    reader_saw_.fetched.erase(fetch);
  }
  void EndLoan(const LargeBuffer& buffer) {
    const Simulation::As as(*simulation_, 0);
    lender_->endpoint().EndLoan(buffer.number);
  }

  std::unique_ptr<Simulation> simulation_;
  LargeRecorder lender_saw_;
  LargeRecorder reader_saw_;
  std::optional<SimEndpoint> lender_;
  std::optional<SimEndpoint> reader_;
  std::optional<SimEndpoint> other_;  // a second reader or lender, of tests that have one
  PeerId to_reader_;
  PeerId to_lender_;
  PeerId to_second_;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_LARGE_WORLD_H_

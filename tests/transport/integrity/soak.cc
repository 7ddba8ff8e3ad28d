// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/integrity/soak.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/integrity/signed_pair.h"

namespace sluice::integrity {
namespace {

using Kind = Transfer::Kind;

constexpr uint32_t kOpen = 16;
constexpr size_t kStride = kRegionBytes / kOpen;

struct Planned {
  Transfer transfer;
  bool wrong = false;
  uint32_t wrong_block = 0;
  std::vector<std::byte> expected;  // where it puts them
  size_t offset = 0;
};

class Soaker {
 public:
  explicit Soaker(uint64_t seed) : pair_(Options(seed)), random_(seed * 7919 + 1) {}

  SoakCounts Run(uint64_t transfers) {
    while (counts_.transfers < transfers && !testing::Test::HasFailure()) Round();
    counts_.stops = pair_.store.queue->counters().stops;
    return counts_;
  }

 private:
  static SignedPairOptions Options(uint64_t seed) {
    base::SeededRandom random(seed);
    SignedPairOptions options;
    options.seed = seed;
    options.queue.max_open = kOpen;
    options.queue.max_replies = kOpen;
    // Half of them pipelined.
    options.queue.offload = random.Below(4) != 0;
    options.queue.pipelining = random.Below(3) != 0;
    options.sim.latency_ns = static_cast<int64_t>(100 + random.Below(5000));
    options.sim.jitter_ns = static_cast<int64_t>(random.Below(2) * random.Below(3000));
    return options;
  }

  Protection RandomProtection() {
    Protection protection;
    protection.memory = static_cast<Guard>(random_.Below(5));
    protection.wire = static_cast<Guard>(random_.Below(5));
    protection.block_bytes = random_.Below(8) == 0 ? 4096 : 512;
    protection.application_tag = static_cast<uint16_t>(random_.Next64());
    protection.reference_tag = static_cast<uint32_t>(random_.Next64());
    return protection;
  }

  void Plan(uint64_t cookie, size_t index, bool want_wrong) {
    Planned& planned = planned_[index];
    const Kind kind = random_.Below(3) == 0 ? Kind::kRead : Kind::kWrite;
    Protection protection = RandomProtection();
    const bool write = kind == Kind::kWrite;
    Guard& from = write ? protection.memory : protection.wire;
    if (want_wrong && from == Guard::kNone) from = Guard::kT10DifCrc;
    const uint64_t data_bytes = (1 + random_.Below(4)) * protection.block_bytes;
    planned.offset = index * kStride;
    planned.transfer = pair_.Plan(kind, protection, planned.offset, data_bytes, cookie);
    planned.wrong = want_wrong;

    std::vector<std::byte> data(data_bytes);
    Fill(random_, data);
    auto memory = Protected(protection, data);
    Protection of_wire = protection;
    of_wire.memory = protection.wire;
    auto wire = Protected(of_wire, data);
    auto& source = write ? memory : wire;
    planned.expected = write ? wire : memory;
    if (want_wrong) {
      const uint64_t bit = random_.Below(source.size() * 8);
      source[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      planned.wrong_block =
          static_cast<uint32_t>(bit / 8 / (protection.block_bytes + SignatureBytes(from)));
    }
    std::ranges::copy(source,
                      (write ? pair_.store : pair_.client).at(planned.offset, kStride).begin());
  }

  void Round() {
    const size_t count = 1 + random_.Below(kOpen);
    const uint64_t how = random_.Below(3);  // none, one, many
    const size_t the_one = random_.Below(count);
    planned_.assign(count, {});
    pair_.store.ended.clear();
    pair_.client.replies.clear();
    size_t wrong = 0;
    const uint64_t first = next_cookie_;
    next_cookie_ += count;
    bool event_may_be_lost = random_.Below(16) == 0;
    pair_.store.deaf = event_may_be_lost;
    for (size_t i = 0; i < count; ++i) {
      Plan(first + i, i, how == 1 ? i == the_one : how == 2 && random_.Below(2) == 0);
      wrong += planned_[i].wrong;
      const absl::Status status = pair_.Post(planned_[i].transfer);
      ASSERT_TRUE(status.ok()) << status;
      if (random_.Below(4) == 0) pair_.Flush();
    }
    const auto done = [&] {
      return pair_.store.ended.size() == count && pair_.client.replies.size() == count;
    };
    if (!pair_.Run(done)) {
      ASSERT_TRUE(event_may_be_lost);
      ++counts_.lost_events;
      // Each stop of this round is found by the watch.
      for (int i = 0; i < 100 && !done(); ++i) {
        {
          const auto as = pair_.As(0);
          pair_.store.queue->Watch();
        }
        pair_.Run(done);
      }
      ASSERT_TRUE(done());
    }
    pair_.store.deaf = false;
    std::multiset<std::string> replies(pair_.client.replies.begin(), pair_.client.replies.end());
    for (size_t i = 0; i < count; ++i) Judge(first + i, planned_[i], replies);
    counts_.transfers += count;
    counts_.wrong += wrong;
    counts_.rounds_with_none_wrong += wrong == 0;
    counts_.rounds_with_one_wrong += wrong == 1;
    counts_.rounds_with_many_wrong += wrong > 1;
  }

  void Judge(uint64_t cookie, const Planned& planned, const std::multiset<std::string>& replies) {
    const Ended& end = pair_.store.ended[cookie];
    ASSERT_EQ(end.times, 1);
    ASSERT_TRUE(end.replied) << end.status;
    ASSERT_EQ(replies.count("ok " + std::to_string(cookie)), planned.wrong ? 0u : 1u);
    ASSERT_EQ(replies.count("bad " + std::to_string(cookie)), planned.wrong ? 1u : 0u);
    const auto mismatch = MismatchOf(end.status);
    ASSERT_EQ(mismatch.has_value(), planned.wrong) << end.status;
    if (planned.wrong) {
      ASSERT_EQ(mismatch->block, planned.wrong_block);
      ASSERT_EQ(mismatch->end, End::kInitiator);
      return;
    }
    ASSERT_TRUE(end.status.ok()) << end.status;
    const bool write = planned.transfer.kind == Kind::kWrite;
    const auto landed =
        (write ? pair_.client : pair_.store).at(planned.offset, planned.expected.size());
    ASSERT_TRUE(std::ranges::equal(landed, planned.expected));
    if (write && planned.transfer.protection.wire != Guard::kNone) CheckAtTarget(planned, landed);
  }

  // What is damaged after the initiator's check is found by the target's, before anybody uses it.
  void CheckAtTarget(const Planned& planned, std::span<std::byte> landed) {
    const Protection& protection = planned.transfer.protection;
    ASSERT_FALSE(Check(protection, Direction::kFromWire, landed));
    if (random_.Below(4) != 0) return;
    const uint64_t bit = random_.Below(landed.size() * 8);
    landed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const auto found = Check(protection, Direction::kFromWire, landed);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->block, bit / 8 / (protection.block_bytes + SignatureBytes(protection.wire)));
    ++counts_.found_at_target;
  }

  SignedPair pair_;
  base::SeededRandom random_;
  std::vector<Planned> planned_;
  uint64_t next_cookie_ = 0;
  SoakCounts counts_;
};

}  // namespace

SoakCounts Soak(uint64_t seed, uint64_t transfers) { return Soaker(seed).Run(transfers); }

}  // namespace sluice::integrity

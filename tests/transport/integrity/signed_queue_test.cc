// SPDX-License-Identifier: Apache-2.0
//
// The same results in every mode, on both fabrics, and on devices that lack what the mode would take.
#include "transport/integrity/signed_queue.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/integrity/signed_pair.h"

namespace sluice::integrity {
namespace signed_queue_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using Kind = Transfer::Kind;

constexpr Guard kGuards[] = {Guard::kNone, Guard::kT10DifCrc, Guard::kT10DifIpChecksum,
                             Guard::kCrc32, Guard::kCrc32c};
constexpr uint32_t kBlocks = 4;
constexpr uint32_t kBlock = 512;
constexpr size_t kData = kBlocks * kBlock;

struct Variant {
  const char* name;
  Mode mode;
  bool simulated;
  bool dials;  // the device has nothing better, rather than the options
};

SignedPairOptions OptionsOf(const Variant& variant, uint64_t seed = 1) {
  SignedPairOptions options;
  options.seed = seed;
  options.simulated = variant.simulated;
  const bool signature = variant.mode != Mode::kSoftware;
  const bool pipelining = variant.mode == Mode::kPipelined;
  if (variant.dials) {
    options.sim.dials.features.signature = signature;
    options.sim.dials.features.signature_pipelining = pipelining;
  } else {
    options.queue.offload = signature;
    options.queue.pipelining = pipelining;
  }
  return options;
}

class SignedQueueTest : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    pair_ = std::make_unique<SignedPair>(OptionsOf(GetParam()));
    ASSERT_EQ(store().queue->mode(), GetParam().mode);
  }
  // Good data where the transfer takes them from, and what they should be where it puts them.
  void Prepare(Kind kind, const Protection& protection, size_t offset) {
    std::vector<std::byte> data(kData);
    Fill(pair_->random(), data);
    const auto memory = Protected(protection, data);
    Protection wire_protection = protection;
    wire_protection.memory = protection.wire;
    const auto wire = Protected(wire_protection, data);
    const bool write = kind == Kind::kWrite;
    std::ranges::copy(write ? memory : wire, source(kind, offset).begin());
    expected_[offset] = write ? wire : memory;
  }
  std::span<std::byte> source(Kind kind, size_t offset) {
    return (kind == Kind::kWrite ? store() : client()).at(offset, kStride);
  }
  bool Arrived(Kind kind, size_t offset) {
    const auto& expected = expected_[offset];
    return std::ranges::equal(
        (kind == Kind::kWrite ? client() : store()).at(offset, expected.size()), expected);
  }
  void Post(Kind kind, const Protection& protection, size_t offset, uint64_t cookie) {
    const absl::Status status = pair_->Post(pair_->Plan(kind, protection, offset, kData, cookie));
    ASSERT_TRUE(status.ok()) << status;
  }
  SignedEnd& store() { return pair_->store; }
  SignedEnd& client() { return pair_->client; }

  static constexpr size_t kStride = 4096;

  std::unique_ptr<SignedPair> pair_;
  std::map<size_t, std::vector<std::byte>> expected_;
};

INSTANTIATE_TEST_SUITE_P(Modes, SignedQueueTest,
                         testing::Values(Variant{"PipelinedSim", Mode::kPipelined, true, false},
                                         Variant{"SerialSim", Mode::kSerial, true, false},
                                         Variant{"SoftwareSim", Mode::kSoftware, true, false},
                                         Variant{"SerialSimByDial", Mode::kSerial, true, true},
                                         Variant{"SoftwareSimByDial", Mode::kSoftware, true, true},
                                         Variant{"PipelinedShm", Mode::kPipelined, false, false},
                                         Variant{"SerialShm", Mode::kSerial, false, false},
                                         Variant{"SoftwareShm", Mode::kSoftware, false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

// The same slots and keys are used for one protection after another.
TEST_P(SignedQueueTest, EveryProtectionMovesItsDataAndReplies) {
  uint64_t cookie = 0;
  std::vector<std::string> expected;
  for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
    for (const Guard memory : kGuards) {
      for (const Guard wire : kGuards) {
        const Protection protection{.memory = memory,
                                    .wire = wire,
                                    .block_bytes = kBlock,
                                    .application_tag = 0x5a5a,
                                    .reference_tag = 77};
        ++cookie;
        Prepare(kind, protection, kStride);
        Post(kind, protection, kStride, cookie);
        ASSERT_TRUE(pair_->RunUntilEnded(cookie));
        EXPECT_TRUE(store().ended[cookie].status.ok()) << store().ended[cookie].status;
        EXPECT_TRUE(store().ended[cookie].replied);
        EXPECT_TRUE(Arrived(kind, kStride)) << ToString(protection);
        expected.push_back("ok " + std::to_string(cookie));
      }
    }
  }
  EXPECT_EQ(client().replies, expected);
  EXPECT_EQ(store().queue->open(), 0u);
  EXPECT_EQ(store().queue->counters().good, cookie);
  EXPECT_EQ(store().queue->counters().stops, 0u);
}

// Every field of every block, and some bits of its data: found by the initiator, told to both.
TEST_P(SignedQueueTest, WrongBitGivesTheErrorReplyAndNeverTheOk) {
  uint64_t cookie = 0;
  for (const Kind kind : {Kind::kWrite, Kind::kRead}) {
    for (const Guard guard : kGuards) {
      if (guard == Guard::kNone) continue;
      Protection protection{.block_bytes = kBlock, .application_tag = 3, .reference_tag = 9};
      (kind == Kind::kWrite ? protection.memory : protection.wire) = guard;
      const size_t step = kBlock + SignatureBytes(guard);
      for (uint32_t block = 0; block < kBlocks; ++block) {
        std::vector<size_t> places = {pair_->random().Below(kBlock)};
        for (size_t i = 0; i < SignatureBytes(guard); ++i) places.push_back(kBlock + i);
        for (const size_t place : places) {
          ++cookie;
          Prepare(kind, protection, kStride);
          const auto bit = static_cast<std::byte>(1 << pair_->random().Below(8));
          source(kind, kStride)[block * step + place] ^= bit;
          Post(kind, protection, kStride, cookie);
          ASSERT_TRUE(pair_->RunUntilEnded(cookie));
          const Ended& end = store().ended[cookie];
          const auto mismatch = MismatchOf(end.status);
          ASSERT_TRUE(mismatch.has_value()) << end.status;
          EXPECT_TRUE(end.replied);
          EXPECT_EQ(mismatch->block, block);
          EXPECT_EQ(mismatch->end, End::kInitiator);
          Field field = Field::kGuard;
          if (IsT10Dif(guard) && place >= kBlock + 2) {
            field = place < kBlock + 4 ? Field::kApplicationTag : Field::kReferenceTag;
          }
          EXPECT_EQ(mismatch->field, field) << Name(guard) << " byte " << place;
          EXPECT_NE(mismatch->expected, mismatch->actual);
          if (place >= kBlock) {
            EXPECT_EQ(std::popcount(mismatch->expected ^ mismatch->actual), 1);
          }
          EXPECT_EQ(store().mismatches[cookie], *mismatch);
          ASSERT_EQ(client().replies.back(), "bad " + std::to_string(cookie));
        }
      }
    }
  }
  EXPECT_EQ(client().replies.size(), cookie);
  EXPECT_EQ(store().queue->counters().mismatches, cookie);
  EXPECT_EQ(store().queue->counters().good, 0u);
  // And it goes on.
  const Protection protection{.memory = Guard::kCrc32c, .block_bytes = kBlock};
  Prepare(Kind::kWrite, protection, kStride);
  Post(Kind::kWrite, protection, kStride, ++cookie);
  ASSERT_TRUE(pair_->RunUntilEnded(cookie));
  EXPECT_TRUE(store().ended[cookie].status.ok());
  EXPECT_TRUE(pair_->Run([&] { return store().queue->state() == QueueState::kRunning; }));
}

// Several wrong ones in one flush, with good ones before, between and behind.
TEST_P(SignedQueueTest, ManyWrongAtOnceEachGetTheirOwnReply) {
  const Protection protection{
      .memory = Guard::kT10DifCrc, .wire = Guard::kCrc32c, .block_bytes = kBlock};
  std::vector<std::string> expected;
  for (uint64_t cookie = 0; cookie < 16; ++cookie) {
    const size_t offset = cookie * kStride;
    const Kind kind = cookie % 3 == 0 ? Kind::kRead : Kind::kWrite;
    Prepare(kind, protection, offset);
    const bool bad = cookie % 4 == 1 || cookie % 4 == 3 || cookie == 6;
    if (bad) source(kind, offset)[cookie * 60] ^= std::byte{2};
    Post(kind, protection, offset, cookie);
    expected.push_back((bad ? "bad " : "ok ") + std::to_string(cookie));
  }
  EXPECT_EQ(pair_->Post(pair_->Plan(Kind::kWrite, protection, 0, kData, 99)).code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(pair_->RunUntilEnded(16));
  EXPECT_THAT(client().replies, testing::UnorderedElementsAreArray(expected));
  for (uint64_t cookie = 0; cookie < 16; ++cookie) {
    const Ended& end = store().ended[cookie];
    EXPECT_EQ(end.times, 1);
    EXPECT_TRUE(end.replied);
    EXPECT_EQ(end.status.ok(), expected[cookie].starts_with("ok")) << cookie;
    if (end.status.ok()) {
      EXPECT_TRUE(Arrived(cookie % 3 == 0 ? Kind::kRead : Kind::kWrite, cookie * kStride));
    }
  }
  EXPECT_EQ(store().queue->counters().cancelled, GetParam().mode == Mode::kPipelined ? 9u : 0u);
  EXPECT_TRUE(pair_->Run([&] { return store().queue->state() == QueueState::kRunning; }));
}

// Both ends move data, and answer, over one pair of queues.
TEST_P(SignedQueueTest, BothEndsAreInitiators) {
  const Protection protection{.memory = Guard::kCrc32c, .block_bytes = kBlock};
  Prepare(Kind::kWrite, protection, 0);
  Post(Kind::kWrite, protection, 0, 1);
  {
    const auto as = pair_->As(1);
    std::vector<std::byte> data(kData);
    const auto bytes = Protected(protection, data);
    std::ranges::copy(bytes, client().at(kStride, kStride).begin());
    Transfer back;
    back.protection = protection;
    back.memory = client().region.data() + kStride;
    back.lkey = client().region.lkey();
    back.remote_address = reinterpret_cast<uint64_t>(store().region.data() + kStride);
    back.rkey = store().region.rkey();
    back.data_bytes = kData;
    back.cookie = 2;
    ASSERT_TRUE(client().queue->Post(back).ok());
  }
  ASSERT_TRUE(pair_->Run([&] {
    return store().ended.size() == 1 && client().ended.size() == 1 && store().replies.size() == 1 &&
           client().replies.size() == 1;
  }));
  EXPECT_TRUE(client().ended[2].status.ok());
  EXPECT_THAT(store().replies, ElementsAre("")) << "a reply may be empty";
}

TEST_P(SignedQueueTest, ReplyAloneAndPlainDataOfAnyLength) {
  Fill(pair_->random(), store().at(0, kStride));
  const Transfer plain = pair_->Plan(Kind::kWrite, {}, 0, 777, 1);
  ASSERT_TRUE(pair_->Post(plain).ok());
  {
    const auto as = pair_->As(0);
    const std::string text = "alone";
    ASSERT_TRUE(store().queue->Tell(std::as_bytes(std::span(text)), 2).ok());
  }
  ASSERT_TRUE(pair_->RunUntilEnded(2));
  EXPECT_THAT(client().replies, UnorderedElementsAre("ok 1", "alone"));
  EXPECT_TRUE(store().ended[2].status.ok());
  EXPECT_TRUE(std::ranges::equal(store().at(0, 777), client().at(0, 777)));
  EXPECT_EQ(client().at(777, 1)[0], std::byte{0});
}

TEST_P(SignedQueueTest, WrongOptionsOfATransferAreRefused) {
  const auto post = [&](const Transfer& transfer) {
    return std::string(pair_->Post(transfer).message());
  };
  const Protection good{.memory = Guard::kCrc32c, .block_bytes = kBlock};
  Transfer transfer = pair_->Plan(Kind::kWrite, good, 0, kData, 1);
  transfer.data_bytes = kData + 1;
  EXPECT_THAT(post(transfer), HasSubstr("not whole blocks"));
  transfer.data_bytes = (size_t{1} << 20) + kBlock;
  EXPECT_THAT(post(transfer), HasSubstr("more than 1048576"));
  transfer.data_bytes = kData;
  transfer.protection.block_bytes = 520;
  EXPECT_THAT(post(transfer), HasSubstr("blocks of 520"));
  transfer.protection.block_bytes = 512;
  transfer.protection.wire = static_cast<Guard>(9);
  EXPECT_THAT(post(transfer), HasSubstr("guard type 9"));
  transfer.protection = good;
  const std::vector<std::byte> reply(kMaxReplyBytes + 1);
  transfer.reply = reply;
  {
    const auto as = pair_->As(0);
    EXPECT_THAT(std::string(store().queue->Post(transfer).message()), HasSubstr("257 bytes"));
  }
  EXPECT_EQ(store().queue->open(), 0u);
}

// The peer's key is nothing: every open transfer ends, says so, and the queue is gone.
TEST_P(SignedQueueTest, RevokedMemoryOfThePeerEndsTheQueue) {
  const Protection protection{.memory = Guard::kCrc32c, .block_bytes = kBlock};
  Prepare(Kind::kWrite, protection, 0);
  Transfer transfer = pair_->Plan(Kind::kWrite, protection, 0, kData, 1);
  transfer.rkey ^= 0x5500;
  ASSERT_TRUE(pair_->Post(transfer).ok());
  Prepare(Kind::kWrite, protection, kStride);
  Post(Kind::kWrite, protection, kStride, 2);
  ASSERT_TRUE(pair_->Run([&] { return !store().downs.empty(); }));
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kPermissionDenied)
      << store().ended[1].status;
  EXPECT_FALSE(store().ended[1].replied);
  EXPECT_EQ(store().ended[2].times, 1);
  EXPECT_THAT(std::string(store().downs[0].message()), HasSubstr("(peer client)"));
  EXPECT_EQ(store().queue->state(), QueueState::kDown);
  EXPECT_EQ(pair_->Post(transfer).code(), absl::StatusCode::kUnavailable);
  for (const std::string& reply : client().replies) EXPECT_NE(reply, "ok 1");
}

// What RC queue pairs of the store were told, in this order.
std::vector<int> g_reads;

TEST(SignedQueueReadsTest, AreNoMoreAtATimeThanEitherDeviceAnswers) {
  static const verbs::VerbsApi watched = [] {
    verbs::VerbsApi api = softdc::sim::Simulation::Verbs();
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if (qp->qp_type == IBV_QPT_RC) {
        if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) g_reads.push_back(attr->max_dest_rd_atomic);
        if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) g_reads.push_back(attr->max_rd_atomic);
      }
      return softdc::sim::Simulation::Verbs().modify_qp(qp, attr, mask);
    };
    return api;
  }();
  for (const auto& [here, there, reads] : {std::tuple{128, 128, 16}, {128, 3, 3}, {2, 16, 2}}) {
    g_reads.clear();
    SignedPairOptions options;
    options.api = &watched;
    options.sim.dials_by_node[0].limits.max_rd_atomic = static_cast<uint32_t>(here);
    options.sim.dials_by_node[1].limits.max_rd_atomic = static_cast<uint32_t>(there);
    const SignedPair pair(options);
    ASSERT_GE(g_reads.size(), 2u);
    EXPECT_THAT(std::vector<int>(g_reads.end() - 2, g_reads.end()), ElementsAre(reads, reads));
  }
}

}  // namespace signed_queue_test
}  // namespace sluice::integrity

// SPDX-License-Identifier: Apache-2.0
//
// The smallest device built on the rings: one owner with one SRQ and one CQ, some Links into it,
// messages of one cache line. Each message carries its sender, its number and a pattern, and the
// owner checks all three, so lost, doubled, reordered and torn messages fail the test. Used by the
// tests that kill processes (with the areas shared over fork) and the one that runs threads.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_MINI_FABRIC_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_MINI_FABRIC_H_

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "tests/transport/softdc/shm/shared_area.h"
#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/repair.h"
#include "transport/softdc/shm/srq_claimer.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc::shm {

inline constexpr uint32_t kMiniSrqId = 3;
inline constexpr uint32_t kMiniCapacity = 8;  // small, so that slots are reused all the time
inline constexpr uint32_t kMiniRing = 8;
inline constexpr uint32_t kMiniBatch = 5;

struct MiniMessage {
  uint32_t sender;
  uint32_t number;
  std::array<uint64_t, 7> pattern;

  static MiniMessage Make(uint32_t sender, uint32_t number) {
    MiniMessage message{.sender = sender, .number = number, .pattern = {}};
    for (size_t i = 0; i < message.pattern.size(); ++i) {
      message.pattern[i] = (uint64_t{sender} << 48 | number) * (2 * i + 3);
    }
    return message;
  }
};
static_assert(sizeof(MiniMessage) == 64);

// One Link: what the two sides share. `sent` is told after each publish, by the sender.
struct MiniLink {
  MiniLink()
      : line(ClaimJournal::Bytes()),
        ring(CqeConsumer::Bytes(kMiniRing)),
        counters(4096),
        journal(*ClaimJournal::Create(line.data(), line.size())),
        consumer(*CqeConsumer::Create(ring.data(), ring.size(), kMiniRing)),
        sent(new (counters.data()) std::atomic<uint32_t>(0)) {}

  SharedArea line, ring, counters;
  ClaimJournal journal;
  CqeConsumer consumer;
  std::atomic<uint32_t>* sent;
};

class MiniOwner {
 public:
  explicit MiniOwner(int links)
      : srq_area(SrqOwner::Bytes(kMiniCapacity, 1)),
        armed_area(ArmedWord::Bytes()),
        buffers(size_t{kMiniCapacity} * sizeof(MiniMessage)),
        srq(*SrqOwner::Create(srq_area.data(), srq_area.size(), kMiniSrqId, kMiniCapacity, 1)),
        armed(*ArmedWord::Create(armed_area.data(), armed_area.size())),
        bell(eventfd(0, EFD_NONBLOCK)),
        link(links),
        received(links, 0) {
    for (uint64_t i = 0; i < kMiniCapacity; ++i) PostBuffer(i);
    srq.Ring();
  }
  ~MiniOwner() { close(bell); }

  // Takes what is there, checks it and posts the buffers again; returns how many CQEs there were.
  int Poll() {
    int count = 0;
    Cqe cqe;
    for (MiniLink& from : link) {
      while (from.consumer.Poll(&cqe)) {
        ++count;
        Accept(cqe);
      }
    }
    if (count != 0) srq.Ring();
    return count;
  }
  bool Idle() const {
    for (const MiniLink& from : link) {
      if (!from.consumer.Empty()) return false;
    }
    return true;
  }
  void RingBell() {
    const uint64_t one = 1;
    EXPECT_EQ(write(bell, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  RepairResult RepairAfter(int dead, const std::vector<int>& living) {
    std::vector<ClaimJournal> journals;
    for (int i : living) journals.push_back(link[i].journal);
    std::vector<const CqeConsumer*> rings;
    for (const MiniLink& each : link) rings.push_back(&each.consumer);
    return Repair(link[dead].journal.Read(), journals, rings, &srq);
  }
  // Every WQE is accounted for: all are posted, none is held, each index and buffer once.
  void ExpectWhole() {
    EXPECT_EQ(srq.outstanding(), kMiniCapacity);
    EXPECT_EQ(srq.Unclaimed(), kMiniCapacity);
    const MiniLink probe;
    ClaimJournal journal = probe.journal;
    auto claimer = *SrqClaimer::Attach(srq_area.data(), srq_area.size());
    std::array<ClaimedWqe, kMiniCapacity> wqes;
    ASSERT_EQ(claimer.Claim(kMiniCapacity, journal, wqes).count, kMiniCapacity);
    uint32_t indices = 0, places = 0;
    for (const ClaimedWqe& wqe : wqes) {
      indices |= 1u << wqe.wqe_index;
      places |= 1u << (wqe.sge.offset / sizeof(MiniMessage));
    }
    EXPECT_EQ(indices, (1u << kMiniCapacity) - 1);
    EXPECT_EQ(places, (1u << kMiniCapacity) - 1);
  }

  SharedArea srq_area, armed_area, buffers;
  SrqOwner srq;
  ArmedWord armed;
  int bell;
  std::vector<MiniLink> link;
  std::vector<uint32_t> received;
  int returned_unused = 0;

 private:
  void PostBuffer(uint64_t buffer) {
    const Sge sge{.offset = buffer * sizeof(MiniMessage),
                  .key = static_cast<uint32_t>(buffer + 1),
                  .length = sizeof(MiniMessage)};
    ASSERT_TRUE(srq.Post({&sge, 1}, buffer));
  }
  void Accept(const Cqe& cqe) {
    ASSERT_EQ(cqe.srq_id, kMiniSrqId);
    if ((cqe.flags & kCqeUnused) != 0) {
      ++returned_unused;
      ASSERT_TRUE(srq.Repost(cqe.wqe_index));
      return;
    }
    const auto buffer = srq.Complete(cqe.wqe_index);
    ASSERT_TRUE(buffer) << "completion for a WQE that is not outstanding";
    MiniMessage got;
    std::memcpy(&got, buffers.bytes() + *buffer * sizeof got, sizeof got);
    ASSERT_LT(cqe.src_qp, received.size());
    const MiniMessage want = MiniMessage::Make(cqe.src_qp, received[cqe.src_qp]);
    ASSERT_EQ(got.sender, want.sender);
    ASSERT_EQ(got.number, want.number) << "lost, doubled or reordered, sender " << cqe.src_qp;
    ASSERT_EQ(got.pattern, want.pattern) << "torn";
    ASSERT_EQ(cqe.byte_len, sizeof got);
    ASSERT_EQ(cqe.imm_data, got.number);
    ++received[cqe.src_qp];
    PostBuffer(*buffer);
  }
};

// The sending side of one Link; everything it reads or writes of the owner's is in the shared
// areas.
class MiniSender {
 public:
  MiniSender(MiniOwner* owner, uint32_t id)
      : id_(id),
        bell_(owner->bell),
        buffers_(owner->buffers.bytes()),
        link_(&owner->link[id]),
        journal_(*ClaimJournal::Attach(link_->line.data(), link_->line.size())),
        producer_(*CqeProducer::Attach(link_->ring.data(), link_->ring.size())),
        claimer_(*SrqClaimer::Attach(owner->srq_area.data(), owner->srq_area.size())),
        armed_(*ArmedWord::Attach(owner->armed_area.data(), owner->armed_area.size())) {}

  // One doorbell of up to `want` messages; every `unused_in`-th WQE is handed back. How many WQEs
  // were taken.
  uint32_t Send(uint32_t want, uint32_t unused_in, std::minstd_rand& random) {
    if (!producer_.CanPublish(want)) return 0;
    std::array<ClaimedWqe, kMiniBatch> wqes;
    const ClaimResult claimed = claimer_.Claim(want, journal_, wqes);
    EXPECT_NE(claimed.status, ClaimStatus::kBroken);
    for (uint32_t i = 0; i < claimed.count; ++i) {
      const bool unused = random() % unused_in == 0;
      Cqe cqe = {.wqe_index = wqes[i].wqe_index, .srq_id = kMiniSrqId, .src_qp = id_};
      if (unused) {
        cqe.flags = kCqeUnused;
      } else {
        Copy(wqes[i].sge, MiniMessage::Make(id_, next_));
        cqe.byte_len = sizeof(MiniMessage);
        cqe.imm_data = next_++;
      }
      producer_.Publish(cqe);
      if (!unused) link_->sent->store(next_, std::memory_order_release);
    }
    if (claimed.count != 0 && armed_.TryTake(id_, false)) {
      const uint64_t one = 1;
      EXPECT_EQ(write(bell_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
      SOFTDC_KILL_POINT(kBellRung);
    }
    return claimed.count;
  }
  uint32_t next() const { return next_; }

 private:
  void Copy(const Sge& to, const MiniMessage& message) {
    ASSERT_LE(to.offset, (kMiniCapacity - 1) * sizeof message);
    ASSERT_EQ(to.key, to.offset / sizeof message + 1) << "slot torn";
    ASSERT_EQ(to.length, sizeof message);
    char* at = buffers_ + to.offset;
    const auto* from = reinterpret_cast<const char*>(&message);
    std::memcpy(at, from, sizeof message / 2);
    SOFTDC_KILL_POINT(kPayloadHalfCopied);
    std::memcpy(at + sizeof message / 2, from + sizeof message / 2, sizeof message / 2);
    SOFTDC_KILL_POINT(kPayloadCopied);
  }

  uint32_t id_;
  int bell_;
  char* buffers_;
  MiniLink* link_;
  ClaimJournal journal_;
  CqeProducer producer_;
  SrqClaimer claimer_;
  ArmedWord armed_;
  uint32_t next_ = 0;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_SHM_MINI_FABRIC_H_

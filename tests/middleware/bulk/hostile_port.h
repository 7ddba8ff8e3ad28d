// SPDX-License-Identifier: Apache-2.0
//
// HostilePort: what a port takes for another port, and says what a test wants: by words, or by a queue pair of its own.
#ifndef SLUICE_TESTS_MIDDLEWARE_BULK_HOSTILE_PORT_H_
#define SLUICE_TESTS_MIDDLEWARE_BULK_HOSTILE_PORT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/bulk/notice.h"
#include "middleware/bulk/port_word.h"
#include "middleware/bulk/ticket.h"
#include "tests/middleware/bulk/port_nodes.h"
#include "transport/integrity/signed_queue.h"
#include "transport/onesided/mover.h"

namespace sluice::bulk {

class HostilePort final : onesided::MoverUser, integrity::SignedQueueUser {
 public:
  // On host `from`, joined to the port of host `to`.
  HostilePort(PortNodes& nodes, uint32_t from, uint32_t to, uint32_t piece_bytes = 4096)
      : nodes_(nodes), from_(from), to_(to) {
    std::string offer;
    {
      const auto as = nodes_.As(to_);
      peer_ = *nodes_[to_].port->Offer(&offer);
    }
    const Ticket theirs = *LoadTicket(offer);
    gid_ = theirs.way.gid;
    Ticket ticket{.port = 1, .piece_bytes = piece_bytes};
    {
      const auto as = nodes_.As(from_);
      mover_ = *onesided::Mover::Create(*nodes_[from_].device, *nodes_[from_].commands,
                                        nodes_.random, *this, {});
      ticket.way = *mover_->Open(0);
      EXPECT_TRUE(mover_->Connect(0, theirs.way, /*last=*/false).ok());
    }
    const auto as = nodes_.As(to_);
    EXPECT_TRUE(nodes_[to_].port->Complete(peer_, ToBytes(ticket)).ok());
  }
  ~HostilePort() override {
    const auto as = nodes_.As(from_);
    nodes_[from_].commands->Finish();
    queue_.reset();
    mover_.reset();
  }

  // As the port there knows it.
  PeerId peer() const { return peer_; }
  bool down() const {
    for (const auto& [peer, why] : nodes_[to_].downs) {
      if (peer == peer_) return true;
    }
    return false;
  }
  // Why it was given up there.
  std::string why() const {
    for (const auto& [peer, status] : nodes_[to_].downs) {
      if (peer == peer_) return std::string(status.message());
    }
    return "";
  }

  // Once there is credit for it. False: it was given up first.
  bool Say(const PortWord& word) {
    const std::vector<std::byte> bytes = ToBytes(word);
    EXPECT_TRUE(Run([&] { return down() || mover_->CanSay(0); }));
    if (down()) return false;
    const auto as = nodes_.As(from_);
    if (!mover_->CanSay(0)) return false;  // it hears of its end before the user there does
    mover_->Say(0, bytes);
    return true;
  }
  bool Say(const Notice& notice) {
    return Say({.kind = PortWord::Kind::kNotice, .notice = notice});
  }

  void MakeQueue() {
    {
      const auto as = nodes_.As(from_);
      queue_ =
          *integrity::SignedQueue::Create(*nodes_[from_].device, *nodes_[from_].commands, *this,
                                          {.max_open = 16, .max_replies = 16, .offload = false});
    }
    Say({.kind = PortWord::Kind::kQueue,
         .qp_number = queue_->address().number,
         .notices = 16,
         .reads = queue_->address().reads});
    ASSERT_TRUE(Run([&] { return there_.has_value(); }));
    {
      const auto as = nodes_.As(from_);
      ASSERT_TRUE(
          queue_->Connect({.number = there_->qp_number, .gid = gid_, .reads = there_->reads}).ok());
    }
    connected_ = true;
    Say({.kind = PortWord::Kind::kReady});
    ASSERT_TRUE(Run([&] { return ready_; }));
  }
  // By the queue pair.
  void Tell(const Notice& notice) {
    std::byte bytes[kNoticeBytes];
    Store(notice, bytes);
    const auto as = nodes_.As(from_);
    EXPECT_TRUE(queue_->Tell(bytes, 0).ok());
    queue_->Flush();
  }

  bool Run(const std::function<bool()>& done) {
    return nodes_.Run([&] {
      const auto as = nodes_.As(from_);
      mover_->Poll();
      if (connected_) queue_->Poll();
      return done();
    });
  }

 private:
  void OnPiece(uint32_t, uint64_t, onesided::PieceEnd) override {}
  void OnWord(uint32_t, std::span<const std::byte> bytes) override {
    const auto word = LoadPortWord(bytes);
    ASSERT_TRUE(word.has_value());
    if (word->kind == PortWord::Kind::kQueue) there_ = *word;
    if (word->kind == PortWord::Kind::kReady) ready_ = true;
  }
  void OnDown(uint32_t, const absl::Status&) override {}
  uint32_t OnMismatch(uint64_t, const integrity::Mismatch&, std::span<std::byte>) override {
    return 0;
  }
  void OnEnd(uint64_t, const absl::Status&, bool) override {}
  void OnReply(std::span<const std::byte>) override {}
  void OnDown(const absl::Status&) override {}

  PortNodes& nodes_;
  const uint32_t from_;
  const uint32_t to_;
  PeerId peer_;
  std::array<std::byte, 16> gid_ = {};
  std::unique_ptr<onesided::Mover> mover_;
  std::unique_ptr<integrity::SignedQueue> queue_;
  std::optional<PortWord> there_;
  bool ready_ = false;
  bool connected_ = false;
};

}  // namespace sluice::bulk

#endif  // SLUICE_TESTS_MIDDLEWARE_BULK_HOSTILE_PORT_H_

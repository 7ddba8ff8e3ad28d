// SPDX-License-Identifier: Apache-2.0
//
// InboundLinks: the contexts that send to this one.
//
// Purpose       Serves the sockets of this context's number blocks: hands out the arena, a journal line and CQE rings. When a sender
//               dies, it recovers what the sender had claimed, and wakes the processes that the sender should have woken.
//
//               Senders may still read memory of the arena after a queue of this context is destroyed. This memory becomes free in
//               rounds: each sender is asked to forget the destroyed queues (kForget). When all senders of the round have answered or
//               died, the blocks that were retired before the round are free. A sender that does not run delays only that.
// Threads       Serve, StopServing, WaitForCopies, WindowInUse: any. The rest: the Loop thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINKS_H_
#define SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINKS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/arena.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/control.h"

namespace sluice::softdc {

class Context;

inline constexpr uint32_t kMaxInboundLinks =
    4096;  // contexts that send to one context; others are refused

class InboundLinks {
 public:
  explicit InboundLinks(Context& context);
  ~InboundLinks();

  void Serve(int listening_fd);
  void StopServing(int listening_fd);

  // Blocks until all copies of living senders that may use a revoked key have ended. Call after the key was revoked, on any thread.
  void WaitForCopies();
  // Returns whether a copy of a living sender may still use the window at `index`. Does not block.
  bool WindowInUse(uint32_t index);

 private:
  struct Link;
  void OnConnect(int listening_fd);
  // Called when no descriptors are free: accepts the next connection and refuses it. Returns false if no connection waits, or if a refusal
  // is not possible now.
  bool TurnAway(int listening_fd);
  void PauseAccepting();
  void OnReadable(const std::shared_ptr<Link>& link);
  bool Answer(Link& link, const shm::ControlMessage& request);
  bool AnswerHello(Link& link, const shm::ControlMessage& request);
  // Sends the answer to a hello together with what the sender needs for that QP number. Returns false if nothing was sent.
  bool ReplyWithTargets(Link& link, const shm::ControlMessage& hello, uint32_t qp_number);
  bool AnswerResolve(Link& link, const shm::ControlMessage& request);
  // Returns the answer to a kResolve. *event_fd: descriptor that goes with it, if there is one.
  shm::ControlMessage TargetOf(Link& link, uint32_t qp_number, UniqueFd* event_fd);
  void RenewSpare();
  bool AnswerSegment(Link& link, const shm::ControlMessage& request);
  void OnBadRequest(const shm::ControlMessage& request);
  bool Reply(Link& link, shm::ControlMessage answer, std::span<const int> fds);
  // Sends the answers in one packet, all or none.
  bool ReplyAll(Link& link, std::span<shm::ControlMessage> answers, std::span<const int> fds);
  void OnBell();
  // Collects the retired blocks that senders may still read in a new round, and asks the senders to forget them.
  void StartRound();
  void AskToForget(Link& link);
  bool OnForgotten(Link& link, uint32_t round);
  // Frees the blocks that all senders have forgotten.
  void FreeForgotten();
  void OnDeath(const std::shared_ptr<Link>& link);
  // Posts the WQEs again that dead senders had claimed. Retries later while a living sender's claim may cover one of them.
  void Repair();
  // Repairs the claim of one dead sender. Returns the number of its WQEs that a living sender may still hold.
  uint32_t RepairAfter(const shm::ClaimIntent& dead, const std::vector<shm::ClaimJournal>& living);

  // State of a link that WaitForCopies and WindowInUse read.
  struct Copier {
    explicit Copier(const shm::ClaimJournal& line) : journal(line) {}
    const shm::ClaimJournal journal;
    std::atomic<bool> ended{false};
  };

  Context& context_;
  UniqueFd bell_;   // eventfd; senders ring it (Context::CollectNotices)
  UniqueFd spare_;  // closed for a moment, to accept and refuse a connection
  std::set<int> listening_;
  uint64_t accept_timer_ = 0;                                  // not 0: accepting is paused
  std::unordered_map<uint32_t, std::shared_ptr<Link>> links_;  // by id
  uint32_t next_id_ = 1;
  uint64_t repair_timer_ = 0;
  struct Round {
    uint32_t number = 0;
    std::vector<shm::Arena::Block> blocks;
  };
  std::deque<Round> rounds_;  // not forgotten by all senders yet
  uint32_t last_round_ = 0;

  std::mutex copiers_mutex_;
  std::vector<std::shared_ptr<Copier>> copiers_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINKS_H_

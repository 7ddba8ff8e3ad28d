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

  // Any thread. A key was taken back: returns when every living sender's copies that may still use
  // it have ended.
  void WaitForCopies();
  // The same for a window, without waiting: whether some living sender's copy may still use it.
  bool WindowInUse(uint32_t index);

 private:
  struct Link;
  void OnConnect(int listening_fd);
  // There are no descriptors for the next who waits there: tells it so. False: there is nobody, or not even
  // that can be done now.
  bool TurnAway(int listening_fd);
  void PauseAccepting();
  void OnReadable(const std::shared_ptr<Link>& link);
  bool Answer(Link& link, const shm::ControlMessage& request);
  bool AnswerHello(Link& link, const shm::ControlMessage& request);
  bool AnswerResolve(Link& link, const shm::ControlMessage& request);
  bool AnswerSegment(Link& link, const shm::ControlMessage& request);
  void OnBadRequest(const shm::ControlMessage& request);
  bool Reply(Link& link, shm::ControlMessage answer, std::span<const int> fds);
  void OnBell();
  // What senders may still look at goes into a round of its own, and they are asked.
  void StartRound();
  void AskToForget(Link& link);
  bool OnForgotten(Link& link, uint32_t round);
  // Frees what no sender looks at any more.
  void FreeForgotten();
  void OnDeath(const std::shared_ptr<Link>& link);
  // Reposts what dead senders had claimed; again later as long as a living claim may cover it.
  void Repair();
  // How many WQEs a living sender may still hold of what the dead one claimed.
  uint32_t RepairAfter(const shm::ClaimIntent& dead, const std::vector<shm::ClaimJournal>& living);

  // What WaitForCopies and WindowInUse have to know of a link.
  struct Copier {
    explicit Copier(const shm::ClaimJournal& line) : journal(line) {}
    const shm::ClaimJournal journal;
    std::atomic<bool> ended{false};
  };

  Context& context_;
  UniqueFd bell_;   // eventfd; senders ring it (Context::CollectNotices)
  UniqueFd spare_;  // closed for a moment, to accept and turn away
  std::set<int> listening_;
  uint64_t accept_timer_ = 0;                                  // accepting is paused until then
  std::unordered_map<uint32_t, std::shared_ptr<Link>> links_;  // by id
  uint32_t next_id_ = 1;
  uint64_t repair_timer_ = 0;
  struct Round {
    uint32_t number = 0;
    std::vector<shm::Arena::Block> blocks;
  };
  std::deque<Round> rounds_;  // not forgotten by all yet
  uint32_t last_round_ = 0;

  std::mutex copiers_mutex_;
  std::vector<std::shared_ptr<Copier>> copiers_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_FABRIC_SHM_INBOUND_LINKS_H_

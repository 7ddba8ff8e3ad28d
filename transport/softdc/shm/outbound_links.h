// SPDX-License-Identifier: Apache-2.0
//
// OutboundLinks: finds what a poster needs to send to a QP number. Requests are asynchronous. A target starts
// as kAsking. The Loop thread connects to the owner of the number's block and sends the request. The first
// request of a connection goes with its hello, and the answer to the hello carries the answer (control.h). It
// calls `on_change` when an answer arrives or a peer dies, so that waiting queues continue.
//
// Posters use targets and links in passes, without a lock of this object. If a peer dies, its targets and
// link are therefore removed from the tables first. They are destroyed after all passes that had begun have
// ended (`drop`, Dropped).
//
// Threads       Public methods: any. Private methods and the callbacks: the Loop thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/softdc/shm/copy.h"
#include "transport/softdc/shm/outbound_link.h"

namespace sluice::softdc {

enum class TargetStatus : uint32_t {
  kAsking,   // wait for on_change
  kReady,    // link, descriptor, srq and cq are set
  kUnknown,  // no process has that number, or its owner died: no response. Ask() asks again
  kDropped,  // removed from the table and soon destroyed: call Find() for another target
};

struct Target {
  explicit Target(uint32_t number) : qp_number(number) {}
  const uint32_t qp_number;
  std::atomic<TargetStatus> status{TargetStatus::kUnknown};
  // Set before status becomes kReady. A later answer may change it. Posters therefore load status (acquire),
  // then use the `reach` that is set at that moment.
  struct Reach {
    shm::OutboundLink* link = nullptr;
    shm::TargetDescriptor* descriptor = nullptr;
    std::optional<shm::SrqClaimer> srq;  // used under link->lock
    shm::RemoteCq* cq = nullptr;         // its ring under link->lock
    // Result of a check of an entry, valid as long as the entry is unchanged. Under link->lock. For the next
    // doorbell, the check is a single comparison.
    struct Known {
      alignas(16) shm::MemoryRegionSnapshot entry;  // compared by vectors
      const shm::MemoryRegionEntry* at = nullptr;
      shm::MappedRegion mapped;

      bool Holds(uint32_t key) const {
        return entry.key() == key && at != nullptr && entry.Is(*at);
      }
    };
    Known written;   // a region that a WRITE through this target may write to
    Known received;  // the region of the last receive buffer
  };
  std::atomic<Reach*> reach{nullptr};  // owned
  ~Target() { delete reach.load(); }
};

// Objects that are removed from the tables. A pass that began before the removal may still use them.
struct Dropped {
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<std::unique_ptr<Target::Reach>> reaches;
  std::vector<std::unique_ptr<shm::RemoteCq>> cqs;
  std::vector<std::unique_ptr<shm::OutboundLink>> links;

  std::function<void()> then;  // called when the other members are destroyed

  bool Empty() const {
    return targets.empty() && reaches.empty() && cqs.empty() && links.empty() && then == nullptr;
  }
};

class OutboundLinks {
 public:
  // `drop` is called on the Loop thread. It must keep its argument until all passes that have begun have
  // ended and no object refers to its targets.
  OutboundLinks(uint64_t context_id, std::function<void()> on_change,
                std::function<void(std::shared_ptr<Dropped>)> drop);
  ~OutboundLinks();

  // Returns the target of a number, never null. It lives until it is kDropped and all passes that had begun
  // by then have ended.
  Target* Find(uint32_t qp_number);
  // Changes kUnknown to kAsking and sends the request. Does nothing in other states.
  void Ask(Target* target);
  // Does the same for a target that was kReady and has been closed: another process may own the number now.
  void AskAnew(Target* target);
  // Requests a segment. on_change is called afterwards.
  void AskSegment(shm::OutboundLink* link, uint32_t segment);
  // Tells the owner that a request of this context failed its queue pair. `event`: ibv_event_type or -1.
  void TellBadRequest(shm::OutboundLink* link, uint32_t qp_number, int event);

  // Set both before the first message. copy_order: order in which the bytes of a message become visible, as
  // this device guarantees it. process_vm: if true, the kernel is asked for copies to and from private
  // memory.
  shm::CopyOrder copy_order = shm::CopyOrder::kWholeMessage;
  bool process_vm = true;

 private:
  // A connection that waits for the answer to its hello, or a link.
  struct Channel;
  void AskOnLoop(Target* target);
  // Returns the channel of the number's block. A new channel names the number in its hello.
  std::shared_ptr<Channel> ChannelFor(uint32_t qp_number);
  // The peer no longer serves that block. Keeps the link; the owner of the block is looked up again.
  void Retire(const Channel& channel);
  void OnReadable(const std::shared_ptr<Channel>& channel);
  // `carried`: the answers behind the answer to the hello, in the same packet.
  bool OnHello(Channel& channel, const shm::ControlMessage& answer,
               std::span<const shm::ControlMessage> carried, std::vector<UniqueFd>& fds);
  void TakeCarried(Channel& channel, std::span<const shm::ControlMessage> carried,
                   std::vector<UniqueFd>& fds);
  // This process has too few free descriptors for what the answer to the hello carries. Connects again, for the
  // plain answer.
  void ConnectPlainly(Channel& channel);
  void OnResolve(Channel& channel, const shm::ControlMessage& answer, std::vector<UniqueFd>& fds);
  void OnForget(const std::shared_ptr<Channel>& channel, uint32_t round);
  void OnSegment(Channel& channel, const shm::ControlMessage& answer, std::vector<UniqueFd>& fds);
  void Close(Channel& channel);
  // Returns the channel of a live link, or null. The pointer may refer to a destroyed link.
  Channel* Find(const shm::OutboundLink* link);
  // Moves each Reach for which `which(Reach)` is true to *dropped, and its target too unless a request is
  // pending.
  template <typename Which>
  void DropReaches(Which which, Dropped* dropped);
  // Moves all kUnknown targets to *dropped.
  void DropUnknown(Dropped* dropped);
  void AskResolve(Channel& channel, uint32_t qp_number);
  void SendAsks(Channel& channel);
  void SendRequest(Channel& channel, shm::ControlKind kind, uint32_t number, int32_t error = 0);

  const uint64_t context_id_;
  const std::function<void()> on_change_;
  const std::function<void(std::shared_ptr<Dropped>)> drop_;

  std::mutex mutex_;
  std::unordered_map<uint32_t, std::unique_ptr<Target>> targets_;

  // Loop thread.
  std::unordered_map<uint32_t, std::shared_ptr<Channel>> channels_;  // by block
  std::vector<std::shared_ptr<Channel>> retired_;
  bool plain_hellos_ = false;  // hellos name no number
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_

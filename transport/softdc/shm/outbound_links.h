// SPDX-License-Identifier: Apache-2.0
//
// OutboundLinks: from a QP number to what a poster needs to reach it. Asking is asynchronous: a
// target starts as kAsking, the Loop thread connects to the owner of the number's block and asks,
// and calls back
// (`on_change`) whenever an answer came or a peer died, so that waiting queues continue.
//
// Posters use targets and links without a lock of this object's, in passes. So what a dead peer
// leaves is taken out of the tables first, and destroyed once every pass that had begun has ended
// (`drop`, Dropped).
//
// Threads       Find, Ask and AskSegment from any thread; the rest is the Loop thread's.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "transport/softdc/shm/copy.h"
#include "transport/softdc/shm/outbound_link.h"

namespace sluice::softdc {

enum class TargetStatus : uint32_t {
  kAsking,   // wait for on_change
  kReady,    // link, descriptor, srq and cq are set
  kUnknown,  // nobody has that number, or its owner died: no response. Ask() again to have another
             // look
  kDropped,  // not in the table any more, and soon destroyed: Find() gives another
};

struct Target {
  explicit Target(uint32_t number) : qp_number(number) {}
  const uint32_t qp_number;
  std::atomic<TargetStatus> status{TargetStatus::kUnknown};
  // Set before status becomes kReady. A later answer may change them, so posters read them under
  // links' rule: load status (acquire), use what `reach` says at that moment.
  struct Reach {
    shm::OutboundLink* link = nullptr;
    shm::TargetDescriptor* descriptor = nullptr;
    std::optional<shm::SrqClaimer> srq;  // used under link->lock
    shm::RemoteCq* cq = nullptr;         // its ring under link->lock
    // Conclusions that hold as long as the entry says the same, under link->lock. From one doorbell to the next that is one comparison.
    struct Known {
      alignas(16) shm::MemoryRegionSnapshot entry;  // compared by vectors
      const shm::MemoryRegionEntry* at = nullptr;
      shm::MappedRegion mapped;

      bool Holds(uint32_t key) const {
        return entry.key() == key && at != nullptr && entry.Is(*at);
      }
    };
    Known written;   // a WRITE through this target may write to it
    Known received;  // the region of the last receive buffer
  };
  std::atomic<Reach*> reach{nullptr};  // owned
  ~Target() { delete reach.load(); }
};

// What no pass that begins now finds any more, while one that had begun may still use it.
struct Dropped {
  std::vector<std::unique_ptr<Target>> targets;
  std::vector<std::unique_ptr<Target::Reach>> reaches;
  std::vector<std::unique_ptr<shm::RemoteCq>> cqs;
  std::vector<std::unique_ptr<shm::OutboundLink>> links;

  std::function<void()> then;  // called when the others are destroyed

  bool Empty() const {
    return targets.empty() && reaches.empty() && cqs.empty() && links.empty() && then == nullptr;
  }
};

class OutboundLinks {
 public:
  // `drop` is called on the Loop thread. It keeps what it is given until all passes that have begun
  // have ended, and nobody remembers a target of it.
  OutboundLinks(uint64_t context_id, std::function<void()> on_change,
                std::function<void(std::shared_ptr<Dropped>)> drop);
  ~OutboundLinks();

  // Never null. Lives until it is kDropped and the passes that had begun by then have ended.
  Target* Find(uint32_t qp_number);
  // kUnknown -> kAsking, and asks. Does nothing in other states.
  void Ask(Target* target);
  // The same for a target that was kReady and has been closed: its number may be somebody else's now.
  void AskAnew(Target* target);
  // Asks for a segment; on_change follows.
  void AskSegment(shm::OutboundLink* link, uint32_t segment);
  // Tells the owner that a request of ours brought its queue pair down. `event`: ibv_event_type or -1.
  void TellBadRequest(shm::OutboundLink* link, uint32_t qp_number, int event);

  // Set before the first message. What this device promises about the order in which a message lands;
  // and whether the kernel is to be asked for copies to and from private memory.
  shm::CopyOrder copy_order = shm::CopyOrder::kWholeMessage;
  bool process_vm = true;

 private:
  // A connection whose hello is under way, or a link.
  struct Channel;
  void AskOnLoop(Target* target);
  std::shared_ptr<Channel> ChannelFor(uint32_t block);
  // The peer serves that block no more: the link stays, the block is looked for anew.
  void Retire(const Channel& channel);
  void OnReadable(const std::shared_ptr<Channel>& channel);
  bool OnHello(Channel& channel, const shm::ControlMessage& answer, std::vector<UniqueFd>& fds);
  void OnResolve(Channel& channel, const shm::ControlMessage& answer, std::vector<UniqueFd>& fds);
  void OnForget(const std::shared_ptr<Channel>& channel, uint32_t round);
  void OnSegment(Channel& channel, const shm::ControlMessage& answer, std::vector<UniqueFd>& fds);
  void Close(Channel& channel);
  // The channel of a link that lives, or null. The pointer may be of one that was destroyed.
  Channel* Find(const shm::OutboundLink* link);
  // Takes what those targets lead to that `which(Reach)` names, and the targets themselves.
  template <typename Which>
  void DropReaches(Which which, Dropped* dropped);
  // Targets that lead nowhere and that nobody asks about.
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
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_OUTBOUND_LINKS_H_

// SPDX-License-Identifier: Apache-2.0
//
// SignedQueue: protected transfers to one peer, each with its reply, over an RC queue pair of its own.
//
// Purpose       A transfer moves whole protected blocks between local memory and memory of the peer. Then it sends the peer a reply.
//               Data and reply are one call. The peer never gets an OK for data with a wrong signature.
//
//               kPipelined   Data and OK are posted together, the OK behind a fence. At a wrong signature the device stops before
//                            the next fence. The queue cancels the OK of each wrong transfer, posts an error reply instead, and
//                            resumes (states.h). It waits for no round trip.
//               kSerial      The queue posts the OK or the error reply after the data has moved and its key was checked.
//               kSoftware    As kSerial, but the CPU checks and converts: before data leaves, or after it has arrived.
//
//               Results and bytes are the same for all three. Only the time differs.
// Ownership     The creator. Device, commands and user outlive it. Before the destructor, the Commands must have finished.
// Threads       The polling thread. Create(), Connect() and the destructor block: a poller runs them in Commands.
// End           Fail(), a failed request, or a stop without a known cause: open transfers end, then OnDown(). By then the queue pair
//               is destroyed, and the device no longer accesses their memory.
// Limits        options.max_open transfers; a further one is RESOURCE_EXHAUSTED. options.max_replies receive buffers for replies of
//               the peer: the peer may have that many transfers open.
// Order         Replies arrive in the order of Post(). An error reply may arrive later. The content of a reply names its request.
#ifndef SLUICE_TRANSPORT_INTEGRITY_SIGNED_QUEUE_H_
#define SLUICE_TRANSPORT_INTEGRITY_SIGNED_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"
#include "transport/integrity/signature_keys.h"
#include "transport/integrity/states.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/rc.h"

namespace sluice::integrity {

inline constexpr uint32_t kMaxReplyBytes = 256;
inline constexpr uint32_t kMaxOpen = 1u << 14;  // transfers of one queue

enum class Mode : uint8_t { kPipelined, kSerial, kSoftware };
std::string_view Name(Mode mode);

struct Transfer {
  using Kind = TransferKind;
  Kind kind = Kind::kWrite;
  Protection protection;
  // Registered local memory of MemoryBytes(protection, data_bytes). The user must not use it until OnEnd().
  std::byte* memory = nullptr;
  uint32_t lkey = 0;
  // Remote memory of WireBytes(protection, data_bytes).
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t data_bytes = 0;
  std::span<const std::byte> reply;  // the OK; at most kMaxReplyBytes, copied
  uint64_t cookie = 0;               // returned in callbacks
};

// Address of a signed queue, for Connect() of the peer's queue.
struct QueueAddress {
  uint32_t number = 0;
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;   // of its port; 0 on RoCE
  uint8_t reads = 1;  // maximum number of RDMA READs that its device answers at a time
};

class SignedQueueUser {
 public:
  virtual ~SignedQueueUser() = default;
  // Reports a wrong signature. The OK was not sent, and will not be sent. Writes the error reply for the peer to `room`,
  // and returns its size: at most room.size(). Must not call the queue.
  virtual uint32_t OnMismatch(uint64_t cookie, const Mismatch& mismatch,
                              std::span<std::byte> room) = 0;
  // Reports the end of a transfer. Last call for the transfer: its memory belongs to the user again. Status: OK, DATA_LOSS
  // (MismatchOf()), UNAVAILABLE (the queue failed), PERMISSION_DENIED (it failed because the peer's keys do not allow a transfer).
  // `replied`: the peer has the reply. If false, and the status is UNAVAILABLE or PERMISSION_DENIED, the peer may have the OK. If
  // false, and the status is DATA_LOSS, the peer has no reply.
  virtual void OnEnd(uint64_t cookie, const absl::Status& status, bool replied) = 0;
  // Delivers a reply of the peer. `bytes` are valid only during the call.
  virtual void OnReply(std::span<const std::byte> bytes) = 0;
  // Reports that the queue is down. Last call of all.
  virtual void OnDown(const absl::Status& why) = 0;
};

struct SignedQueueOptions {
  uint32_t max_open = 16;
  uint32_t max_replies = 16;
  uint64_t max_transfer_bytes = uint64_t{1} << 20;  // of data
  std::string peer;                                 // name of the peer in error texts
  // False: do not use the device's feature.
  bool offload = true;
  bool pipelining = true;
  // Completion channel that gets events after Arm(); null: none. Outlives the queue.
  ibv_comp_channel* channel = nullptr;
  // Protection domain of the queue; null: the device's. The peer can access only memory of this domain. Local memory of transfers
  // must be registered in it. Outlives the queue.
  ibv_pd* domain = nullptr;
};

struct SignedQueueCounters {
  uint64_t posted = 0;
  uint64_t good = 0;
  uint64_t mismatches = 0;
  uint64_t stops = 0;          // stops in state SQD
  uint64_t cancelled = 0;      // OKs of wrong transfers
  uint64_t state_queries = 0;  // sent to the device
  uint64_t replies = 0;        // received from the peer
};

class SignedQueue {
 public:
  static absl::StatusOr<std::unique_ptr<SignedQueue>> Create(device::Device& device,
                                                             poller::Commands& commands,
                                                             SignedQueueUser& user,
                                                             const SignedQueueOptions& options);
  ~SignedQueue();
  SignedQueue(const SignedQueue&) = delete;
  SignedQueue& operator=(const SignedQueue&) = delete;

  // Returns the address for Connect() of the peer's queue.
  QueueAddress address() const { return address_; }
  // Connects to the peer's queue. Afterwards the peer can access local memory as its keys allow.
  absl::Status Connect(const QueueAddress& peer);

  // Queues a transfer; nothing is sent before Flush(). With kSoftware, it checks and converts the data of a kWrite.
  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED (this device does not support that signature), RESOURCE_EXHAUSTED (max_open),
  // UNAVAILABLE (the queue is not connected, or has failed).
  absl::Status Post(const Transfer& transfer);
  // Queues a reply without a transfer. OnEnd() follows, as for a transfer.
  absl::Status Tell(std::span<const std::byte> reply, uint64_t cookie);
  // UNIMPLEMENTED: this device does not support that signature.
  absl::Status Supports(const Protection& protection) const;
  // Posts the data of all queued transfers, then their replies. If the queue is not running now, Poll() posts them later.
  void Flush();
  // Processes commands, completions and replies, and returns their number. May call the user.
  int Poll();
  // Requests an event at the channel for the next completion or reply. Call Poll() once more after it: earlier completions raise no
  // event.
  void Arm();
  // Handles an event of the device. Ignores events of other queue pairs.
  void OnDeviceEvent(const device::DeviceEvent& event);
  // Finds a stop whose event was lost. Call it from time to time, at intervals longer than a transfer takes.
  void Watch();
  void Fail(const absl::Status& why);

  Mode mode() const { return mode_; }
  QueueState state() const { return state_; }
  uint32_t open() const { return open_; }
  const SignedQueueCounters& counters() const { return counters_; }

 private:
  enum class Stage : uint8_t {
    kFree,
    kWaiting,     // for Flush()
    kUnderWay,    // data posted; kPipelined: its OK as well
    kLanded,      // data moved; its signature is not checked yet
    kAnswered,    // its OK is posted, after the data
    kMismatched,  // its error reply is posted
  };
  enum class Role : uint64_t { kConfigure, kData, kOk, kError };

  struct Slot {
    Stage stage = Stage::kFree;
    uint64_t number = 0;  // number of the transfer, part of its wr_ids
    Transfer transfer;
    uint32_t reply_bytes = 0;
    std::optional<Mismatch> mismatch;
  };

  SignedQueue(device::Device& device, poller::Commands& commands, SignedQueueUser& user,
              const SignedQueueOptions& options)
      : device_(device), commands_(commands), user_(user), options_(options) {}
  absl::Status Init();

  uint64_t WrId(uint32_t index, Role role) const {
    return slots_[index].number << 16 | uint64_t{index} << 2 | static_cast<uint64_t>(role);
  }
  std::byte* ReplyMemory(uint32_t index) const {
    return replies_.data() + size_t{index} * kMaxReplyBytes;
  }
  std::byte* Staging(uint32_t index) const { return staging_.data() + index * staging_bytes_; }
  Guard From(const Slot& slot) const;
  bool UsesKey(const Slot& slot) const;
  bool Fences(const Slot& slot) const;
  bool Stages(const Slot& slot) const;

  absl::Status Take(const Transfer& transfer);
  void Convert(uint32_t index);
  void PostData(uint32_t index);
  void PostReply(uint32_t index, Role role, bool fence = false);
  void Begin() { ibv_wr_start(qp_.ex); }
  void Complete();
  void Mismatched(uint32_t index);
  void End(uint32_t index, const absl::Status& status, bool replied);

  int PollSends();
  int PollReplies();
  int PollUntilEmpty();
  void OnCompletion(const ibv_wc& completion);
  void Look();  // checks landed_, and posts the replies
  void PostReceive(uint32_t index);

  // stop.cc
  void AskIfTold();
  void Ask(QueueEvent event);
  void OnState(const absl::StatusOr<ibv_qp_state>& state);
  void OnStop();
  void OnCancelled(const std::vector<uint32_t>& wrong, const std::vector<int>& taken);
  void OnErr();
  void OnGone();
  absl::Status Unexplained(const std::string& what) const;

  device::Device& device_;
  poller::Commands& commands_;
  SignedQueueUser& user_;
  const SignedQueueOptions options_;
  Mode mode_ = Mode::kSoftware;
  QueueState state_ = QueueState::kRunning;
  absl::Status why_;
  QueueAddress address_;
  memory::Slab replies_;  // buffers of replies to the peer, then of replies from it
  memory::Slab staging_;
  size_t staging_bytes_ = 0;  // of one transfer
  std::optional<SignatureKeys> keys_;
  verbs::Cq send_cq_;
  verbs::Cq receive_cq_;
  verbs::Qp qp_;  // destroyed first
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> waiting_;  // for Flush(), in the order of Post()
  std::vector<uint32_t> landed_;
  uint32_t open_ = 0;
  uint64_t next_number_ = 1;
  uint64_t completions_ = 0;
  uint64_t watched_completions_ = 0;
  bool connected_ = false;
  bool err_seen_ = false;
  bool told_ = false;  // an event arrived and was not handled yet
  SignedQueueCounters counters_;
};

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_SIGNED_QUEUE_H_

// SPDX-License-Identifier: Apache-2.0
//
// Mover: moves bytes between local memory and memory of peers, one-sided, over a few DCIs that all peers share, and sends short words to
// the peers. On a device without DC: over an RC queue pair for each peer.
//
// Purpose       Plain bulk data. A peer has a stream of a DCI only while it has requests in flight. It has its own DCT here, with its own
//               receive buffers, for its words and for its READs and WRITEs. If a piece fails with its stream or its DCI, its user
//               posts it again. A failed piece may have run. This is harmless, because the peer learns of a piece only by a word that
//               is sent after the piece has ended.
// Words         Each word arrives once, in the order of Say(), also after failures: words are numbered, kept until the peer has taken
//               them, and retransmitted if they may be lost. A peer has at most `window` words in flight, and as many buffers wait for
//               it alone. So a peer that does not poll delays no other DCI.
// Peers         Places 0 to max_peers - 1, assigned by the user. Open() returns the address for the other side, Connect() takes the
//               address of the other side. After Close(), OnDown() follows when no request is in flight.
// Ownership     The creator. Device, commands and user outlive it. The destructor blocks; call Commands::Finish() first.
// Threads       The polling thread. Create(), Open(), Connect() and the destructor block. Callbacks run inside Poll(), Close() and the
//               commands' Drain().
// Device        OnDeviceEvent(): if the address of this host changes, all peers end. If a DCT stops, its peer ends. If the device fails,
//               all peers end when its queue pairs are gone, and health() has the reason (docs/decisions/0048).
// Offenders     A peer that sends more words than it was granted, or too many useless ones, ends and loses its DCT
//               (docs/decisions/0054). Other peers are not affected.
// RC            A queue pair is connected by both sides. The side that connects last is the first to send: the other side waits for this
//               message. A failed or refused piece ends the queue pair and its peer. The other side notices by an event of its device, or
//               when it sends next. All peers access the device's protection domain (rc_ways.cc).
// Limits        MoverOptions. CanMove() and CanSay() report whether another request may be posted.
#ifndef SLUICE_TRANSPORT_ONESIDED_MOVER_H_
#define SLUICE_TRANSPORT_ONESIDED_MOVER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/memory/region.h"
#include "transport/memory/slab.h"
#include "transport/onesided/address.h"
#include "transport/onesided/receive_queues.h"
#include "transport/onesided/word.h"
#include "transport/peer/credits.h"
#include "transport/poller/commands.h"
#include "transport/queue/rc_queues.h"
#include "transport/queue/send_queues.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/target.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {

// A piece to move between registered local memory and memory of the peer.
struct Piece {
  bool read = false;  // true: from the peer to local memory
  std::byte* memory = nullptr;
  uint32_t lkey = 0;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t bytes = 0;
  uint64_t cookie = 0;  // returned in OnPiece()
};

enum class PieceEnd : uint8_t {
  kMoved,
  kFailed,   // its stream or DCI failed: the user may post the piece again
  kRefused,  // the local or remote device denies access permanently
};

class MoverUser {
 public:
  virtual ~MoverUser() = default;
  // Reports the end of a piece. Last call for the piece: its memory belongs to the user again.
  virtual void OnPiece(uint32_t place, uint64_t cookie, PieceEnd end) = 0;
  // Delivers a word of the peer. `word` is valid only during the call.
  virtual void OnWord(uint32_t place, std::span<const std::byte> word) = 0;
  // Reports that a peer is down: after Close(), or because the peer disconnected, does not answer, or broke the protocol, or the device
  // failed. Last call for the peer. Its place can be used again.
  virtual void OnDown(uint32_t place, const absl::Status& why) = 0;
};

struct MoverOptions {
  uint32_t max_peers = 64;
  uint32_t window = 16;      // maximum number of words in flight, per peer and direction
  uint32_t max_pieces = 16;  // maximum number of pieces in flight per peer
  uint32_t dci_count = 2;    // without the additional DCI for probation; with RC no effect
  bool use_streams = true;
  // Time after which a peer that does not answer is declared dead.
  int64_t dead_peer_ns = 1'000'000'000;
  // Completion channel that gets events after Arm(); null: none. Outlives the mover.
  ibv_comp_channel* channel = nullptr;
};

struct MoverCounters {
  uint64_t words_sent = 0;
  uint64_t words_again = 0;
  uint64_t words_taken = 0;
  uint64_t words_twice = 0;  // dropped
  uint64_t strangers = 0;    // messages that are no valid word of the peer that owns the queue
  uint64_t over_credit = 0;  // peers disconnected for words over their grant or useless messages
  uint64_t pieces = 0;
  uint64_t pieces_failed = 0;
  uint64_t pieces_refused = 0;
};

class Mover final : private queue::QueueUser {
 public:
  // Maximum number of pieces in flight, all peers together.
  static constexpr uint32_t kMaxPieces = 256;

  static absl::StatusOr<std::unique_ptr<Mover>> Create(device::Device& device,
                                                       poller::Commands& commands,
                                                       base::Random& random, MoverUser& user,
                                                       const MoverOptions& options);
  ~Mover() override;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Opens a free place, and returns its address for the other side's Connect(). The peer can access only memory that is registered in
  // `domain`; null: in the device's domain. Blocks: the device creates a DCT or a queue pair, and an SRQ. RESOURCE_EXHAUSTED: the device
  // is still destroying the queues of disconnected peers.
  absl::StatusOr<Address> Open(uint32_t place, std::shared_ptr<memory::Domain> domain = nullptr);
  // Allocates a protection domain for Open(). Blocks. UNIMPLEMENTED: RC, where all peers are in one domain.
  absl::StatusOr<std::shared_ptr<memory::Domain>> MakeDomain();
  // Connects a place to the address of the peer. Blocks. `last`: the peer has connected already. With DC both sides may send at once, and
  // `last` has no effect. Errors: UNAVAILABLE (the address can't be reached, the device has failed, or no DCI is left),
  // INVALID_ARGUMENT (the peer's window is more than twice MoverOptions::window), FAILED_PRECONDITION (one side has DC, the other RC).
  absl::Status Connect(uint32_t place, const Address& peer, bool last);
  // Disconnects the peer: nothing more is posted, and OnDown() follows in a later Poll(). `goodbye`: also sends a goodbye to the peer,
  // after the posted requests.
  void Close(uint32_t place, const absl::Status& why, bool goodbye);
  // Destroys the DCT or queue pair of a peer by a command. Afterwards the peer can access nothing here. For a place that is closed or that
  // ends in the same pass.
  // Without this call, the DCT of a disconnected peer stays for a while, because requests of the peer may be in flight
  // (ReceiveQueues::Retire()).
  void CutOff(uint32_t place);

  // Returns false while the peer can receive nothing, because it has not connected yet (RC).
  bool IsReady(uint32_t place) const { return ways_[place].ready; }
  // Returns true if Move() can take a piece now.
  bool CanMove(uint32_t place) const;
  // Posts a piece. Requires CanMove().
  void Move(uint32_t place, const Piece& piece);
  bool CanSay(uint32_t place) const;
  // Posts a copy of a word of at most kMaxWordBytes. Requires CanSay().
  void Say(uint32_t place, std::span<const std::byte> word);

  // Processes completions and words, and returns their number. Rings the doorbells for requests posted before and during the call.
  int Poll();
  // Requests an event at the channel for the next completion or word. Call Poll() once more after it: earlier completions raise no
  // event.
  void Arm();
  // Handles an event of the device. The user passes on all of them.
  void OnDeviceEvent(const device::DeviceEvent& event);
  // Returns OK, or the error if the device has failed or no DCI is left: then no peer can be connected.
  const absl::Status& health() const { return dead_; }
  // Returns true if a completion is due. Then call Watch() from time to time: it finds a DCI that stopped without an event.
  bool busy() const { return queue_->busy(); }
  void Watch(int64_t now_ns) { queue_->Watch(now_ns); }
  const MoverCounters& counters() const { return counters_; }
  const queue::PoolCounters& queue_counters() const { return queue_->counters(); }

 private:
  enum class State : uint8_t { kFree, kOpen, kUp, kEnding };

  struct Way {
    State state = State::kFree;
    uint64_t token = 0;  // required in each message of the peer
    uint32_t receive_queue = ReceiveQueues::kNone;
    Address peer;
    verbs::Ah handle;
    queue::Target target;
    peer::SendCredits send;
    peer::ReceiveCredits receive;
    uint32_t next_to_send = 0;
    uint32_t next_expected = 0;
    uint32_t useless = 0;       // number of useless messages since the last useful one
    std::deque<uint32_t> kept;  // slots of words that the peer has not acknowledged, in order
    uint32_t pieces = 0;        // in flight
    bool ready = false;         // the peer has connected, and can receive
    bool grant_due = false;
    bool parting = false;  // the goodbye to the peer is in flight
    absl::Status why;
  };

  // A peer whose RC queue pair has stopped. It ends in the next Poll(), when its last messages have been read.
  struct Stopped {
    uint32_t place = 0;
    absl::Status why;
    bool due = false;
  };

  Mover(device::Device& device, poller::Commands& commands, base::Random& random, MoverUser& user,
        const MoverOptions& options);
  absl::Status Init();
  absl::Status MakeSendQueues();

  int Receive();
  void OnReceived(Way& way, std::span<const std::byte> bytes);
  // Returns true if the grant is new.
  bool TakeGrant(Way& way, uint32_t granted);
  void TakeWord(Way& way, uint32_t sequence, std::span<const std::byte> word);
  void OnUseless(Way& way);
  void EndOffender(Way& way, const std::string& cause);
  void PostWord(Way& way, uint32_t slot);
  void OnSaid(Way& way, uint32_t slot, bool ok);
  bool PostControl(Way& way, WordKind kind);
  void SayGrants();
  void TellEnds();
  void End(Way& way, const absl::Status& why);

  // rc_ways.cc
  absl::Status OpenQueue(Way& way);
  absl::Status ConnectQueue(Way& way, const Address& peer);
  bool HasQueue(const Way& way) const {
    return rc_ != nullptr && queue::RcQueues::IsAttached(way.target);
  }
  void OnQueueStopped(const void* qp);
  absl::Status QueueStopped() const;
  void NoteStopped(uint32_t place, const absl::Status& why);
  void EndStopped();
  absl::Status NoDomain() const;
  absl::Status UnlikeTransports() const;

  absl::Status AcquireHandle(Way& way, const Address& peer);

  // device_life.cc
  void RenewAddress();
  absl::Status AddressMoved() const;
  absl::Status TargetStopped() const;
  void Break(const absl::Status& why);

  // Returns whether the user may post. Between the end of an RC queue pair and the next Poll(), the target is closed.
  static bool IsOpen(const Way& way) {
    return way.state == State::kUp && way.ready && !way.target.closed;
  }
  uint32_t PlaceOf(const Way& way) const { return static_cast<uint32_t>(&way - ways_.data()); }
  Way& WayOf(const queue::Target& target) { return ways_[target.cookie]; }

  void OnSent(queue::Target* target, uint32_t slot, bool ok) override;
  void OnTargetReset(queue::Target* target, const absl::Status& why) override;
  void OnTargetFailed(queue::Target* target, const absl::Status& why) override;
  void OnUnanswered(queue::Target*) override {}  // every request is signalled
  void OnTargetQuiet(queue::Target*) override {}
  void OnQueueDead(const absl::Status& why) override;

  device::Device& device_;
  poller::Commands& commands_;
  base::Random& random_;
  MoverUser& user_;
  const MoverOptions options_;
  ibv_gid gid_ = {};
  verbs::PathOptions path_;  // for gid_; a copy, because commands change the path of the device
  memory::Slab memory_;
  verbs::Cq send_cq_;
  std::unique_ptr<ReceiveQueues> receive_;
  std::optional<queue::SlotTable> slots_;
  std::vector<uint64_t> cookies_;  // of pieces, by slot
  std::vector<bool> arrived_;      // by slot: the word has reached the peer's device
  uint16_t look_ = 0;              // number of the last look (peer/credits.h)
  std::vector<Way> ways_;          // constant size: targets stay where they are
  std::vector<uint32_t> ending_;   // places in state kEnding
  std::vector<Stopped> stopped_;
  uint32_t grants_due_ = 0;  // ways whose grant is due
  bool thorough_ = false;    // the next Poll() is the last before a sleep
  absl::Status dead_;        // health()
  MoverCounters counters_;
  std::unique_ptr<queue::SendQueues> queue_;  // destroyed first
  queue::RcQueues* rc_ = nullptr;             // the same object as queue_; null: DC
};

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_MOVER_H_

// SPDX-License-Identifier: Apache-2.0
//
// Mover: moves bytes between local memory and memory of peers, one-sided, over a few DCIs that all peers share, and sends short words to
// the peers.
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
#include "transport/queue/dci_pool.h"
#include "transport/queue/slot_table.h"
#include "transport/queue/target.h"
#include "transport/verbs/handles.h"

namespace sluice::onesided {

// Registered memory here, and memory of the peer's.
struct Piece {
  bool read = false;  // from there to here
  std::byte* memory = nullptr;
  uint32_t lkey = 0;
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t bytes = 0;
  uint64_t cookie = 0;  // the user's own
};

enum class PieceEnd : uint8_t {
  kMoved,
  kFailed,   // with its stream or its DCI: it may be moved again
  kRefused,  // the device here or there does not allow it, and never will
};

class MoverUser {
 public:
  virtual ~MoverUser() = default;
  // The last call for a piece: its memory is the user's again.
  virtual void OnPiece(uint32_t place, uint64_t cookie, PieceEnd end) = 0;
  // Valid during the call.
  virtual void OnWord(uint32_t place, std::span<const std::byte> word) = 0;
  // The last call for a peer: after Close(), or since it does not answer, or has said goodbye. Its place may be given out
  // again.
  virtual void OnDown(uint32_t place, const absl::Status& why) = 0;
};

struct MoverOptions {
  uint32_t max_peers = 64;
  uint32_t window = 16;      // words of a peer, each way
  uint32_t max_pieces = 16;  // of a peer, under way
  uint32_t dci_count = 2;    // and one for probation
  bool use_streams = true;
  // A peer that does not answer for so long is down.
  int64_t dead_peer_ns = 1'000'000'000;
  // Not null: completions are announced there after Arm(). It outlives the mover.
  ibv_comp_channel* channel = nullptr;
};

struct MoverCounters {
  uint64_t words_sent = 0;
  uint64_t words_again = 0;
  uint64_t words_taken = 0;
  uint64_t words_twice = 0;  // dropped
  uint64_t strangers = 0;    // what came and is no word of the peer whose queue took it
  uint64_t over_credit = 0;  // peers that were ended since they sent more than they were granted
  uint64_t pieces = 0;
  uint64_t pieces_failed = 0;
  uint64_t pieces_refused = 0;
};

class Mover final : private queue::QueueUser {
 public:
  // Of all peers together.
  static constexpr uint32_t kMaxPieces = 256;

  static absl::StatusOr<std::unique_ptr<Mover>> Create(device::Device& device,
                                                       poller::Commands& commands,
                                                       base::Random& random, MoverUser& user,
                                                       const MoverOptions& options);
  ~Mover() override;
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Opens a free place, for the other side's Connect(). The peer reaches memory that is registered in `domain` and no other; null:
  // in the device's. Blocks: it costs the device a DCT and an SRQ. RESOURCE_EXHAUSTED: those of peers that have left are not
  // destroyed yet.
  absl::StatusOr<Address> Open(uint32_t place, std::shared_ptr<memory::Domain> domain = nullptr);
  // For Open(); blocks.
  absl::StatusOr<std::shared_ptr<memory::Domain>> MakeDomain();
  // UNAVAILABLE: that address can't be reached, or no DCI is left. INVALID_ARGUMENT: its window is more than twice the one
  // here.
  absl::Status Connect(uint32_t place, const Address& peer);
  // Nothing more is posted; OnDown() follows in a later Poll(). `goodbye`: the peer is told, behind what is posted.
  void Close(uint32_t place, const absl::Status& why, bool goodbye);
  // The peer of this place, closed or not, reaches nothing here any more: its DCT is destroyed by a command. Of others the DCT stays
  // until some more have left, since their requests may still be under way.
  void CutOff(uint32_t place);

  // Whether Move() takes a piece now.
  bool CanMove(uint32_t place) const;
  // Only if CanMove().
  void Move(uint32_t place, const Piece& piece);
  bool CanSay(uint32_t place) const;
  // Only if CanSay(); at most kMaxWordBytes, copied.
  void Say(uint32_t place, std::span<const std::byte> word);

  // Completions and words; how many. Rings the doorbells of what was posted before and meanwhile.
  int Poll();
  // The next completion or word raises an event at the channel. Poll() once more after it: what came before raises none.
  void Arm();
  // Whatever is told of the device.
  void OnDeviceEvent(const device::DeviceEvent& event);
  // Not OK: the device has failed, or no DCI is left. No peer can be connected any more.
  const absl::Status& health() const { return dead_; }
  // A completion is due. Then Watch() is to be called now and then, for a DCI that has died without a word.
  bool busy() const { return queue_->busy(); }
  void Watch(int64_t now_ns) { queue_->Watch(now_ns); }
  const MoverCounters& counters() const { return counters_; }
  const queue::PoolCounters& queue_counters() const { return queue_->counters(); }

 private:
  enum class State : uint8_t { kFree, kOpen, kUp, kEnding };

  struct Way {
    State state = State::kFree;
    uint64_t token = 0;  // that the peer has to show
    uint32_t receive_queue = ReceiveQueues::kNone;
    Address peer;
    verbs::Ah handle;
    queue::Target target;
    peer::SendCredits send;
    peer::ReceiveCredits receive;
    uint32_t next_to_send = 0;
    uint32_t next_expected = 0;
    uint32_t useless = 0;       // arrivals since the last one that was of use
    std::deque<uint32_t> kept;  // slots of words that the peer has not taken, in their order
    uint32_t pieces = 0;        // under way
    bool grant_due = false;
    bool parting = false;  // its goodbye is under way
    absl::Status why;
  };

  Mover(device::Device& device, poller::Commands& commands, base::Random& random, MoverUser& user,
        const MoverOptions& options);
  absl::Status Init();

  int Receive();
  void OnReceived(Way& way, std::span<const std::byte> bytes);
  // Whether it says anything new.
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

  // device_life.cc
  void RenewAddress();
  absl::Status AddressMoved() const;
  absl::Status TargetStopped() const;
  void Break(const absl::Status& why);

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
  verbs::PathOptions path_;  // to gid_; the device's own changes inside commands
  memory::Slab memory_;
  verbs::Cq send_cq_;
  std::unique_ptr<ReceiveQueues> receive_;
  std::optional<queue::SlotTable> slots_;
  std::vector<uint64_t> cookies_;  // of pieces, by slot
  std::vector<bool> arrived_;      // words at the peer's device, by slot
  uint16_t look_ = 0;              // number of the last look at what came
  std::vector<Way> ways_;          // constant size: targets stay where they are
  std::vector<uint32_t> ending_;   // places
  uint32_t grants_due_ = 0;        // ways whose grant is due
  bool thorough_ = false;          // the next look is the last before a sleep
  absl::Status dead_;              // health()
  MoverCounters counters_;
  std::unique_ptr<queue::DciPool> queue_;  // goes first
};

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_MOVER_H_

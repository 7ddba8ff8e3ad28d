// SPDX-License-Identifier: Apache-2.0
//
// Port: moves data between local memory and leased memory of peers, one-sided, in pieces, with or without protection.
//
// Purpose       Owns leases and the connections to other ports. The owner of a capability reads or writes the memory behind it. The
//               lender's CPU takes no part. Its port reports each transfer after its end, in the order in which transfers began, with
//               the same result as at the initiator. Tickets and capabilities are bytes that travel in any message: an RPC, a flow.
//
//               Joining two ports:    one   Offer() -> ticket ------->  other   Accept(ticket) -> ticket
//                                     one   Complete(ticket) <--------
//               The side that accepted may start transfers at once. Protected transfers wait until the other side has completed; with
//               RC all transfers do.
// Plain         Transfers without a guard, and the notices about them, use a few DCIs that all peers share (onesided/mover.h). If the
//               lender's device refuses one, only this transfer ends. On a device without DC each peer has an RC queue pair, which a
//               refused transfer ends: then the ports have to be joined again (docs/decisions/0068).
// Protected     Transfers with a guard in Transfer::protection use a queue pair for each peer (integrity/signed_queue.h), created for
//               the first such transfer of either port. Signatures in memory and on the wire are checked, inserted, stripped and
//               converted block by block (integrity/protection.h). The lender gets no success for wrong data. Data that was written
//               with signatures on the wire is checked again at its destination.
// Ownership     The creator. Device, clock, commands and user outlive it. Before the destructor, the Commands must have finished.
//               After it, the device accesses no memory, and no callback follows.
// Threads       One thread for all calls but Wake(). The user is called only inside Poll() and PrepareToSleep(). Offer() and Accept()
//               create queues, Accept() and Complete() an address handle: they may block.
// Limits        PortOptions. Beyond them: RESOURCE_EXHAUSTED. If all connections to peers are in use, the port closes the least
//               recently used one that has no open transfer.
#ifndef SLUICE_MIDDLEWARE_BULK_PORT_H_
#define SLUICE_MIDDLEWARE_BULK_PORT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/bulk/capability.h"
#include "middleware/bulk/leases.h"
#include "middleware/bulk/notice.h"
#include "middleware/bulk/port_word.h"
#include "middleware/bulk/ticket.h"
#include "middleware/bulk/transfer.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/integrity/announcements.h"
#include "transport/integrity/signature_keys.h"
#include "transport/integrity/signed_queue.h"
#include "transport/onesided/mover.h"
#include "transport/poller/commands.h"
#include "transport/poller/poller.h"

namespace sluice::bulk {

class PortUser : public LeaseUser {
 public:
  // Reports the end of a transfer of this side. Last call for the transfer. Status: OK, DATA_LOSS (MismatchOf(), whose block counts
  // from the start of the transfer), CANCELLED, DEADLINE_EXCEEDED, PERMISSION_DENIED (the capability is no longer valid), UNAVAILABLE.
  virtual void OnTransferred(TransferId transfer, const absl::Status& status) = 0;
  virtual void OnArrival(PeerId peer, const Arrival& arrival) = 0;
  // Reports that a peer is down. Last call for the peer. Its transfers have ended.
  virtual void OnPeerDown(PeerId peer, const absl::Status& why) = 0;
};

class Port final : private onesided::MoverUser {
 public:
  // Creates a port. INVALID_ARGUMENT: an option is out of range.
  static absl::StatusOr<std::unique_ptr<Port>> Create(device::Device& device, base::Clock& clock,
                                                      base::Random& random,
                                                      poller::Commands& commands, PortUser& user,
                                                      const PortOptions& options);
  ~Port() override;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // Join two ports. `reach`: memory of this port that the peer can access; each side chooses its own value. Offer() and Accept() block
  // while the device creates a DCT (RC: a queue pair) and an SRQ for the peer, and a protection domain for Reach::kOwn (UNIMPLEMENTED with RC).
  // Errors: UNAVAILABLE (the device has failed, see Health(); all three functions), RESOURCE_EXHAUSTED (all places for peers are taken,
  // or the device is still destroying the queues of disconnected peers), FAILED_PRECONDITION (one port has DC, the other RC).
  absl::StatusOr<PeerId> Offer(std::string* ticket, Reach reach = Reach::kShared);
  absl::StatusOr<PeerId> Accept(std::string_view ticket, std::string* answer,
                                Reach reach = Reach::kShared);
  absl::Status Complete(PeerId peer, std::string_view ticket);
  // Disconnects the peer. OnPeerDown() follows. Open transfers end with UNAVAILABLE.
  absl::Status Disconnect(PeerId peer);

  // Returns OK or UNAVAILABLE. UNAVAILABLE: the device has failed, no peer can be joined, and a new port is needed; or the device's
  // port is down, and the user need not do anything. Does not report a change of this host's address or a stopped queue of a peer:
  // the affected peers end with OnPeerDown(), and the ports can be joined again.
  absl::Status Health() const;

  Leases& leases() { return leases_; }
  // Lends memory to this peer alone; see Leases::Lend(). Any transfer of this side can use the memory. A protected transfer with a peer
  // of Reach::kOwn requires memory that was lent to this peer. The lease does not end with the peer, but no peer can access its memory
  // after that. Errors: NOT_FOUND (no such peer), FAILED_PRECONDITION (the peer has Reach::kShared).
  absl::StatusOr<LeaseId> Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                               PeerId peer);

  // Starts a transfer; OnTransferred() follows. Errors: INVALID_ARGUMENT, OUT_OF_RANGE, PERMISSION_DENIED (the capability lacks the
  // right, or another peer issued it), NOT_FOUND (no such peer or lease), FAILED_PRECONDITION (the memory is not lent to this peer),
  // RESOURCE_EXHAUSTED, UNIMPLEMENTED (the device does not support the signature).
  absl::StatusOr<TransferId> Start(PeerId peer, const TransferRequest& request);
  // Cancels a transfer: no further piece starts. The transfer ends when its pieces in flight have ended, with its normal result if
  // these were the last. NOT_FOUND: it has ended.
  absl::Status Cancel(TransferId transfer);
  // Returns the number of data bytes moved so far; 0 after the transfer has ended.
  uint64_t Progress(TransferId transfer) const;

  int Poll();

  // Arms all event sources, and polls once more. Returns false if there is work: call Poll() instead of sleeping. After true, fd()
  // becomes readable when Poll() has work.
  bool PrepareToSleep();
  int fd() const { return poller_->fd(); }
  // Returns the maximum duration of a sleep in nanoseconds; -1: no limit.
  int64_t SleepLimitNs() const;
  // Makes fd() readable. Any thread.
  void Wake() { poller_->Wake(); }

  const PortCounters& counters() const { return counters_; }

 private:
  struct Outgoing {
    TransferId id = 0;
    TransferRequest request;
    Leases::Memory memory;
    uint64_t number = 0;  // Notice::number
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t posted = 0;
    std::vector<uint32_t> again;  // plain: failed pieces that must be posted again
    uint32_t under_way = 0;
    bool told = false;  // the result (plain) or kCancelled for the remaining pieces was sent
    uint64_t moved_bytes = 0;
    int64_t patience_end_ns = 0;  // if stopped: time at which open pieces disconnect the peer
    absl::Status status;
  };
  struct Incoming;
  struct SignedWay;
  struct Peer;

  Port(device::Device& device, base::Clock& clock, poller::Commands& commands, PortUser& user,
       const PortOptions& options, uint64_t number);
  absl::Status Init(base::Random& random);

  Peer* Find(PeerId peer) const;
  absl::StatusOr<Peer*> NewPeer();
  absl::StatusOr<onesided::Address> OpenWay(Peer& peer, Reach reach);
  absl::Status Connect(Peer& peer, const Ticket& ticket, bool last);
  absl::Status CheckRequest(const Peer& peer, const TransferRequest& request) const;

  void PollEvents(int64_t now_ns);
  void CheckTime(Peer& peer, int64_t now_ns);
  void CheckJoined(Peer& peer, int64_t now_ns);
  void PumpPlain(Peer& peer);
  void PumpSigned(Peer& peer);
  void MovePiece(Peer& peer, Outgoing& out);
  bool TellEnd(Peer& peer, const Outgoing& out);
  absl::Status PostPiece(Peer& peer, Outgoing& out);
  absl::Status TellRest(Peer& peer, Outgoing& out);
  Notice NoticeOf(const Outgoing& out, uint32_t piece) const;
  uint64_t PieceBytes(const Outgoing& out, uint32_t piece) const;
  void Sweep(Peer& peer);
  void GiveUp(Peer& peer, const absl::Status& why);
  void GiveUpBroken(Peer& peer, std::string_view cause);
  void Bury(Peer& peer);
  bool Say(Peer& peer, const PortWord& word);

  // The queue pair for protected transfers: signed_way.cc.
  int AdvanceSigned(Peer& peer);
  int MakeRoom(int64_t now_ns);
  bool MayClose(const Peer& peer) const;
  void MakeQueue(Peer& peer);
  void ConnectQueue(Peer& peer);
  void ReadQueue(Peer& peer);
  void DropQueue(Peer& peer);
  int EndQueue(Peer& peer);
  void OnQueueDown(Peer& peer, const absl::Status& why);
  void OnQueueWord(Peer& peer, const PortWord& word);

  // Callbacks of the mover.
  void OnPiece(uint32_t place, uint64_t cookie, onesided::PieceEnd end) override;
  void OnWord(uint32_t place, std::span<const std::byte> word) override;
  void OnDown(uint32_t place, const absl::Status& why) override;

  // Callbacks of the peer's queue pair.
  uint32_t OnMismatch(uint64_t cookie, const integrity::Mismatch& mismatch,
                      std::span<std::byte> room);
  void OnPieceEnd(uint64_t cookie, const absl::Status& status);
  void OnNotice(Peer& peer, std::span<const std::byte> bytes);  // from here on: arrivals.cc
  void TakeNotice(Peer& peer, const Notice& notice);
  std::string_view CountPieces(Peer& peer, Incoming& in, const Notice& notice) const;
  void Arrive(Peer& peer);
  void CheckLanded(const Notice& notice, Arrival* arrival);

  device::Device& device_;
  base::Clock& clock_;
  poller::Commands& commands_;
  PortUser& user_;
  const PortOptions options_;
  const uint64_t number_;
  std::unique_ptr<poller::Poller> poller_;
  std::unique_ptr<integrity::Announcements> announcements_;  // outlives the queues
  Leases leases_;
  std::unique_ptr<onesided::Mover> mover_;
  std::optional<integrity::SignatureSupport> support_;  // nullopt: the CPU handles all signatures
  std::vector<std::unique_ptr<Peer>> peers_;            // indexed by the mover's place
  absl::flat_hash_map<TransferId, std::unique_ptr<Outgoing>> transfers_;
  TransferId next_transfer_ = 1;
  uint32_t signed_made_ = 0;     // peers whose queue pair exists or is being created
  uint32_t signed_waiting_ = 0;  // peers without room for a queue pair in this pass
  // Time at which a peer that does not answer is disconnected to make room; 0: no peer.
  int64_t room_at_ns_ = 0;
  uint64_t uses_ = 0;  // counter that orders peers by their last use
  size_t first_ = 0;   // index of the peer that this pass serves first
  uint64_t passes_ = 0;
  bool look_at_fds_ = false;  // check descriptors in the next pass: after a sleep
  int64_t watch_at_ns_ = 0;
  PortCounters counters_;
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PORT_H_

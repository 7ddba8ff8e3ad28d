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
//               The side that accepted may start transfers at once. Protected transfers wait until the other side has completed.
// Plain         Transfers without a guard, and the notices about them, use a few DCIs that all peers share (onesided/mover.h). If the
//               lender's device refuses one, only this transfer ends.
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
  // The last call for a transfer of one's own: OK, DATA_LOSS (MismatchOf(), whose block counts from the start of the
  // transfer), CANCELLED, DEADLINE_EXCEEDED, PERMISSION_DENIED (the capability is no longer valid), UNAVAILABLE.
  virtual void OnTransferred(TransferId transfer, const absl::Status& status) = 0;
  virtual void OnArrival(PeerId peer, const Arrival& arrival) = 0;
  // The last call for a peer. Transfers with it have ended.
  virtual void OnPeerDown(PeerId peer, const absl::Status& why) = 0;
};

class Port final : private onesided::MoverUser {
 public:
  // INVALID_ARGUMENT: an option can't be.
  static absl::StatusOr<std::unique_ptr<Port>> Create(device::Device& device, base::Clock& clock,
                                                      base::Random& random,
                                                      poller::Commands& commands, PortUser& user,
                                                      const PortOptions& options);
  ~Port() override;
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  // UNAVAILABLE, all three: as Health(), if the device has failed.
  // `reach`: what the peer reaches of this port's memory; each side chooses for itself. The device makes a DCT and an SRQ for each
  // peer, with Reach::kOwn a protection domain too: Offer() and Accept() block for that. RESOURCE_EXHAUSTED: all places are taken,
  // or the device is still destroying the queues of peers that have left.
  absl::StatusOr<PeerId> Offer(std::string* ticket, Reach reach = Reach::kShared);
  absl::StatusOr<PeerId> Accept(std::string_view ticket, std::string* answer,
                                Reach reach = Reach::kShared);
  absl::Status Complete(PeerId peer, std::string_view ticket);
  // OnPeerDown() follows; transfers end as UNAVAILABLE.
  absl::Status Disconnect(PeerId peer);

  // OK, or UNAVAILABLE: the device has failed: no peer can be joined, and a new port is needed; or its port is
  // down, which needs nothing here. If this host's address moves, or a peer's queue stops, peers end by OnPeerDown() and the ports
  // can be joined again: that does not show here.
  absl::Status Health() const;

  Leases& leases() { return leases_; }
  // As Leases::Lend(), for this peer alone. For transfers of one's own the memory is as good as any other; those that are
  // protected and go to a peer of its own reach need it. NOT_FOUND: no such peer; FAILED_PRECONDITION: the peer is of shared
  // reach. The lease does not end with the peer, but no peer reaches its memory then.
  absl::StatusOr<LeaseId> Lend(std::span<std::byte> memory, uint8_t rights, int64_t end_ns,
                               PeerId peer);

  // INVALID_ARGUMENT, OUT_OF_RANGE, PERMISSION_DENIED (the capability's rights, or it is of another peer), NOT_FOUND (no such
  // peer or lease), RESOURCE_EXHAUSTED, UNIMPLEMENTED (the device does not know that signature); else OnTransferred() follows.
  absl::StatusOr<TransferId> Start(PeerId peer, const TransferRequest& request);
  // Cancels a transfer: no further piece starts. The transfer ends when its pieces in flight have ended, with its normal result if
  // these were the last. NOT_FOUND: it has ended.
  absl::Status Cancel(TransferId transfer);
  // Data that have been moved so far; 0 once it has ended.
  uint64_t Progress(TransferId transfer) const;

  int Poll();

  // Arms everything that could give Poll() something to do. False: there is work, poll again instead of sleeping. After
  // true, fd() becomes readable when there is.
  bool PrepareToSleep();
  int fd() const { return poller_->fd(); }
  // How long a sleep may last at most: nanoseconds until the next time that counts, or -1 for none.
  int64_t SleepLimitNs() const;
  // Makes fd() readable. Any thread.
  void Wake() { poller_->Wake(); }

  const PortCounters& counters() const { return counters_; }

 private:
  struct Outgoing {
    TransferId id = 0;
    TransferRequest request;
    Leases::Memory memory;
    uint64_t number = 0;  // between these two ports
    uint32_t piece_bytes = 0;
    uint32_t pieces = 0;
    uint32_t posted = 0;
    std::vector<uint32_t> again;  // plain: pieces that have to be posted once more
    uint32_t under_way = 0;
    bool told = false;  // plain: how it ended; protected: that the rest will not come
    uint64_t moved_bytes = 0;
    int64_t patience_end_ns = 0;  // once the rest will not
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
  absl::Status Connect(Peer& peer, const Ticket& ticket);
  absl::Status CheckRequest(const Peer& peer, const TransferRequest& request) const;

  void PollEvents(int64_t now_ns);
  void CheckTime(Peer& peer, int64_t now_ns);
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

  // What the mover says.
  void OnPiece(uint32_t place, uint64_t cookie, onesided::PieceEnd end) override;
  void OnWord(uint32_t place, std::span<const std::byte> word) override;
  void OnDown(uint32_t place, const absl::Status& why) override;

  // What the peer's queue says.
  uint32_t OnMismatch(uint64_t cookie, const integrity::Mismatch& mismatch,
                      std::span<std::byte> room);
  void OnPieceEnd(uint64_t cookie, const absl::Status& status);
  void OnNotice(Peer& peer, std::span<const std::byte> bytes);  // arrivals.cc, as those below
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
  std::optional<integrity::SignatureSupport> support_;  // none: the CPU knows them all
  std::vector<std::unique_ptr<Peer>> peers_;            // by their place at the mover
  absl::flat_hash_map<TransferId, std::unique_ptr<Outgoing>> transfers_;
  TransferId next_transfer_ = 1;
  uint32_t signed_made_ = 0;     // peers with a queue pair, or one in the making
  uint32_t signed_waiting_ = 0;  // peers for which there was no room in this pass
  int64_t room_at_ns_ = 0;       // when one that is awaited loses its place to them; 0: none does
  uint64_t uses_ = 0;
  size_t first_ = 0;  // peer of this pass
  uint64_t passes_ = 0;
  bool look_at_fds_ = false;  // after a sleep
  int64_t watch_at_ns_ = 0;
  PortCounters counters_;
};

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PORT_H_

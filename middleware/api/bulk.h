// SPDX-License-Identifier: Apache-2.0
//
// Bulk: large data, moved straight between the memory of two programs, with T10-DIF or CRCs or without.
//
//   auto bulk = sluice::Bulk::Create();                       // on both sides
//   std::string ticket, answer;
//   auto peer = (*bulk)->Offer(&ticket);                       // one side; the ticket goes to the other in any message
//   auto peer = (*bulk)->Accept(ticket, &answer);              // the other; the answer comes back
//   absl::Status joined = (*bulk)->Complete(*peer, answer);    // one side
//
//   auto lent = (*bulk)->Lend(buffer, bulk::kMayWrite);        // its capability goes to the other side in any message
//   absl::Status moved = (*bulk)->Move(*peer, request);        // the other side writes into the buffer
//   auto arrival = (*bulk)->Await(*peer, tag, timeout);        // and this one hears of it
//   absl::Status ended = (*bulk)->Return(lent->id);            // from here on nobody reaches the buffer
//
// What it is    A port (bulk/port.h) with a device and a thread of its own.
// Errors        Statuses that teach; of damaged data DATA_LOSS, of which integrity::MismatchOf() tells block, field, expected and
//               actual value, and the end that found it. Both sides hear the same.
// Threads       One polls: it spins while there is work and for a moment after, then sleeps until the device, or a call, wakes it.
//               One more runs what may block in the kernel.
// Thread-safety All calls from any thread, but not from `done`, where they answer FAILED_PRECONDITION. Create, Offer, Accept,
//               Complete, Lend, Return and Move wait for what they do. Memory outlives its lease.
// What ends it  The destructor, with nobody waiting in a call: all memory is out of reach then. In `done` it can't wait for
//               the thread it runs on: it says so and ends the process.
#ifndef SLUICE_MIDDLEWARE_API_BULK_H_
#define SLUICE_MIDDLEWARE_API_BULK_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/bulk/capability.h"
#include "middleware/bulk/transfer.h"
#include "transport/integrity/convert.h"
#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"

namespace sluice {

struct BulkOptions {
  std::string device = "auto";  // or a name that sluice_info shows
  bulk::PortOptions port;
};

class Bulk {
 public:
  // Maximum number of arrivals of a peer that are kept until Await() takes them; the next one drops the oldest of that peer.
  // Peers that are down have as many together; the one with most loses its oldest first.
  static constexpr size_t kMaxKeptArrivals = 4096;

  static absl::StatusOr<std::unique_ptr<Bulk>> Create(const BulkOptions& options = {});
  ~Bulk();
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  // Joining two sides. The one that accepted may begin at once.
  // `reach`: bulk::Reach::kShared, or kOwn: the peer reaches only memory that this side lends for it.
  absl::StatusOr<bulk::PeerId> Offer(std::string* ticket, bulk::Reach reach = bulk::Reach::kShared);
  absl::StatusOr<bulk::PeerId> Accept(std::string_view ticket, std::string* answer,
                                      bulk::Reach reach = bulk::Reach::kShared);
  absl::Status Complete(bulk::PeerId peer, std::string_view ticket);

  struct Lent {
    bulk::LeaseId id;
    std::string capability;  // what to give away; of no use if there are no rights
  };
  // `rights`: bulk::kMayRead, kMayWrite, or 0 for memory of one's own transfers. After `time` it ends by itself. `peer`: the
  // peer, joined with bulk::Reach::kOwn, that alone reaches the memory; none: every peer joined with kShared. Errors for
  // `peer`: NOT_FOUND (no such peer), FAILED_PRECONDITION (joined with kShared).
  absl::StatusOr<Lent> Lend(std::span<std::byte> memory, uint8_t rights,
                            absl::Duration time = absl::InfiniteDuration(), bulk::PeerId peer = {});
  // Returns when nobody reaches the memory any more. NOT_FOUND: that is so already.
  absl::Status Return(bulk::LeaseId lease);

  // Port::Start(); then `done` runs once, on the thread of this object, and must not block. Deadlines are those of
  // base::RealClock.
  absl::StatusOr<bulk::TransferId> Start(bulk::PeerId peer, const bulk::TransferRequest& request,
                                         absl::AnyInvocable<void(const absl::Status&)> done);
  absl::Status Cancel(bulk::TransferId transfer);
  // Starts, and waits until it has ended.
  absl::Status Move(bulk::PeerId peer, const bulk::TransferRequest& request);

  // The peer's next transfer with that tag that ends in memory lent here, or has ended and nobody asked. Its status
  // is in it. DEADLINE_EXCEEDED: none came; UNAVAILABLE: the peer is down.
  absl::StatusOr<bulk::Arrival> Await(bulk::PeerId peer, uint64_t tag, absl::Duration timeout);

  // OK, or UNAVAILABLE: the device has failed, so that a new Bulk is needed; or its port is down, which needs nothing here.
  // Waits for the thread of this object.
  absl::Status Health();

  const std::string& device_choice() const;
  // Since the start, as of the last pass of this object's thread. Any thread; never waits for that one.
  bulk::PortCounters counters() const;

 private:
  class Impl;
  explicit Bulk(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_BULK_H_

// SPDX-License-Identifier: Apache-2.0
//
// Bulk: transfers large data directly between the memory of two programs, unprotected, or protected
// by T10-DIF or CRCs.
//
//   auto bulk = sluice::Bulk::Create();                       // on both sides
//   std::string ticket, answer;
//   auto peer = (*bulk)->Offer(&ticket);                       // one side; the ticket goes to the other in any message
//   auto peer = (*bulk)->Accept(ticket, &answer);              // the other; the answer comes back
//   absl::Status joined = (*bulk)->Complete(*peer, answer);    // one side
//
//   auto lent = (*bulk)->Lend(buffer, bulk::kMayWrite);        // its capability goes to the other side in any message
//   absl::Status moved = (*bulk)->Move(*peer, request);        // the other side writes into the buffer
//   auto arrival = (*bulk)->Await(*peer, tag, timeout);        // and this side gets the result
//   absl::Status ended = (*bulk)->Return(lent->id);            // from here on no peer reaches the buffer
//
// Purpose       A port (bulk/port.h) with its own device and its own thread.
// Ownership     The user owns it, and the memory that it lends. Memory must outlive its lease.
// Threads       All functions may be called from any thread. In `done` they fail with
//               FAILED_PRECONDITION. Create, Offer, Accept, Complete, Lend, Return and Move block
//               until the operation has ended. One thread of the object polls: it spins while there
//               is work and for a short time after, then sleeps until the device or a call wakes
//               it. Another thread runs operations that may block in the kernel.
// Errors        absl::Status with cause and remedy. Damaged data: DATA_LOSS;
//               integrity::MismatchOf() returns block, field, expected and actual value, and the
//               side that found it. Both sides get the same status.
// End           The destructor, while no thread is in a call. Afterwards no peer can access lent
//               memory. In `done` the destructor cannot wait for the thread that it runs on: it
//               writes a message to standard error and ends the process.
// Processes     After fork() a child cannot use the object: functions fail with FAILED_PRECONDITION, and counters are zero. The destructor
//               returns at once there. The parent's object is not affected. Lent memory stays the parent's.
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
#include "transport/device/path_settings.h"
#include "transport/integrity/convert.h"
#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"

namespace sluice {

using PathOptions = device::PathSettings;  // also in options.h

struct BulkOptions {
  std::string device = "auto";  // as in options.h
  PathOptions path;
  // Path MTU in bytes. Set the same value as EndpointLimits::path_mtu of the program, and in all peers. If a peer has another value,
  // its first transfer of more than one packet fails. If the port's active MTU is smaller, it applies. Values: 256, 512, 1024, 2048,
  // 4096.
  uint32_t path_mtu = 1024;
  bulk::PortOptions port;
};

class Bulk {
 public:
  // Maximum number of arrivals of one peer that are kept until Await() takes them. At the limit the
  // oldest arrival of that peer is dropped. All disconnected peers together have the same limit;
  // the peer with the most arrivals loses its oldest first.
  static constexpr size_t kMaxKeptArrivals = 4096;

  static absl::StatusOr<std::unique_ptr<Bulk>> Create(const BulkOptions& options = {});
  ~Bulk();
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  // Join two sides. The side that called Accept() may start transfers at once.
  // `reach`: bulk::Reach::kShared, or kOwn: the peer can access only memory that this side lends to
  // it; UNIMPLEMENTED without DC. FAILED_PRECONDITION: one side has DC, the other RC.
  // Without DC a transfer that the other side's device refuses also ends the peer, and a transfer
  // waits until both sides have joined.
  absl::StatusOr<bulk::PeerId> Offer(std::string* ticket, bulk::Reach reach = bulk::Reach::kShared);
  absl::StatusOr<bulk::PeerId> Accept(std::string_view ticket, std::string* answer,
                                      bulk::Reach reach = bulk::Reach::kShared);
  absl::Status Complete(bulk::PeerId peer, std::string_view ticket);

  struct Lent {
    bulk::LeaseId id;
    std::string capability;  // to send to the peer; useless without rights
  };
  // Lends `memory`.
  // `rights`: bulk::kMayRead, bulk::kMayWrite, or both; 0: only this side's transfers use the
  // memory.
  // `time`: duration of the lease; default: until Return().
  // `peer`: the only peer that can access the memory; it was joined with bulk::Reach::kOwn.
  // Default: all peers that were joined with kShared.
  // Errors for `peer`: NOT_FOUND (no such peer), FAILED_PRECONDITION (joined with kShared).
  absl::StatusOr<Lent> Lend(std::span<std::byte> memory, uint8_t rights,
                            absl::Duration time = absl::InfiniteDuration(), bulk::PeerId peer = {});
  // Ends a lease. Returns when no peer can access the memory. NOT_FOUND: the lease had ended
  // before.
  absl::Status Return(bulk::LeaseId lease);

  // Starts a transfer (Port::Start()). `done` runs once, on this object's thread, and must not
  // block. The clock of deadlines is base::RealClock.
  absl::StatusOr<bulk::TransferId> Start(bulk::PeerId peer, const bulk::TransferRequest& request,
                                         absl::AnyInvocable<void(const absl::Status&)> done);
  absl::Status Cancel(bulk::TransferId transfer);
  // Starts a transfer, and waits until it has ended.
  absl::Status Move(bulk::PeerId peer, const bulk::TransferRequest& request);

  // Returns the next ended transfer of `peer` with this tag into or out of memory that this side
  // has lent. Arrival::status is its result. An earlier arrival that was not taken is returned at
  // once.
  // Errors: DEADLINE_EXCEEDED (none arrived within `timeout`), UNAVAILABLE (the peer is down).
  absl::StatusOr<bulk::Arrival> Await(bulk::PeerId peer, uint64_t tag, absl::Duration timeout);

  // Returns OK or UNAVAILABLE: the device has failed, and a new Bulk is needed; or its port is
  // down, and the object recovers by itself. Waits for this object's thread.
  absl::Status Health();

  const std::string& device_choice() const;
  // Counts since the start, as of the last pass of this object's thread. Any thread; does not wait
  // for that thread.
  bulk::PortCounters counters() const;

 private:
  class Impl;
  explicit Bulk(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_BULK_H_

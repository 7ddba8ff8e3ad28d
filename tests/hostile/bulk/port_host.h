// SPDX-License-Identifier: Apache-2.0
//
// PortHost: an honest process with a bulk port, a victim or one of those beside it. To each honest peer it makes one transfer after another,
// a write and then a read of what was written, plain or protected; each must end once, with OK, with its bytes at both ends,
// and the peer must be told, in order. To guests, of whom nothing is expected, it makes transfers that end by their deadline.
//
// Contract      What the port tells its user is checked: each lease, transfer and peer ends once, and nothing comes of what has ended.
// Ownership     The trial; the simulation outlives it.
// Threads       One thread.
#ifndef SLUICE_TESTS_HOSTILE_BULK_PORT_HOST_H_
#define SLUICE_TESTS_HOSTILE_BULK_PORT_HOST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "middleware/bulk/port.h"
#include "tests/hostile/host.h"
#include "tests/hostile/report.h"

namespace sluice::hostile::bulk_port {

inline constexpr size_t kRegionBytes = 64 << 10;

class PortHost final : public Host, private bulk::PortUser {
 public:
  struct Guest {
    uint32_t link = 0;
    std::string ticket;
  };
  struct End {
    uint32_t link;
    absl::Status why;
  };
  struct Took {
    int64_t began_ns;
    int64_t ns;
  };

  PortHost(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
           const bulk::PortOptions& options, Report* report);
  ~PortHost() override;

  // Joins two honest ports; their memory is lent to each other, and both make transfers from then on, until Finish().
  static void Join(PortHost& one, PortHost& other, bulk::Reach reach);
  void Finish() { working_ = false; }
  void Resume() { working_ = true; }
  // It makes no protected transfers, so that queue pairs for them are wanted by the other side alone.
  void set_plain(bool plain) { plain_ = plain; }
  // No transfer is open.
  bool idle() const { return open_ == 0; }
  // With each honest peer there is memory to work on.
  bool ready() const;

  // A peer of whom nothing is expected. `ticket`, `capability`: its own, as bytes.
  absl::StatusOr<Guest> OfferGuest(bulk::Reach reach);
  absl::StatusOr<Guest> AcceptGuest(const std::string& ticket, const std::string& capability,
                                    bulk::Reach reach);
  absl::Status CompleteGuest(uint32_t link, const std::string& ticket,
                             const std::string& capability);
  // What was lent to it; nothing, if not yet, or no more.
  std::optional<bulk::Capability> LentTo(uint32_t link) const;
  // Takes it back, and lends other memory.
  void TakeBackFrom(uint32_t link);
  void PutOut(uint32_t link);
  // Guests that are not down.
  std::vector<uint32_t> guests() const;
  bool IsUp(uint32_t link) const;

  // Leaves all peers and takes all memory back. Then: whether nothing of it is left.
  void Leave();
  bool left() const { return links_.empty() && leases_.empty(); }

  bulk::Port& port() { return *port_; }
  const std::vector<Took>& took() const { return took_; }
  const std::vector<End>& ends() const { return ends_; }  // of guests
  uint64_t moved() const { return moved_; }               // honest transfers that have ended
  uint64_t guest_transfers() const { return guest_transfers_; }

 private:
  struct Link;
  struct Lease {
    uint32_t link;
    std::vector<std::byte> memory;
  };
  using Key = std::pair<uint32_t, uint32_t>;

  int Poll() override { return port_->Poll(); }
  bool PrepareToSleep() override { return port_->PrepareToSleep(); }
  int64_t SleepLimitNs() override { return port_->SleepLimitNs(); }

  Link& NewLink(bulk::PeerId peer, bool honest, bulk::Reach reach);
  Link* Find(bulk::PeerId peer);
  void Lend(Link& link, bool local);
  void ReturnLeases(Link& link);
  void Forget(uint32_t number);
  void Tick();
  void Work(Link& link);
  void WorkWithGuest(Link& link);
  void Check(Link& link, const absl::Status& status);
  void Break(const std::string& what);

  // bulk::PortUser
  void OnLent(bulk::LeaseId lease, const absl::StatusOr<bulk::Capability>& capability) override;
  void OnReturned(bulk::LeaseId lease) override;
  void OnTransferred(bulk::TransferId transfer, const absl::Status& status) override;
  void OnArrival(bulk::PeerId peer, const bulk::Arrival& arrival) override;
  void OnPeerDown(bulk::PeerId peer, const absl::Status& why) override;

  const bulk::PortOptions options_;
  Report* const report_;
  base::SeededRandom dice_;
  std::unique_ptr<bulk::Port> port_;
  bool working_ = true;
  bool plain_ = false;
  bool leaving_ = false;
  uint32_t next_link_ = 1;
  std::map<uint32_t, std::unique_ptr<Link>> links_;  // until they are down and their memory is back
  std::map<Key, Lease> leases_;
  std::map<bulk::TransferId, uint32_t> transfers_;  // links
  uint32_t open_ = 0;
  std::vector<Took> took_;
  std::vector<End> ends_;
  uint64_t moved_ = 0;
  uint64_t guest_transfers_ = 0;
};

}  // namespace sluice::hostile::bulk_port

#endif  // SLUICE_TESTS_HOSTILE_BULK_PORT_HOST_H_

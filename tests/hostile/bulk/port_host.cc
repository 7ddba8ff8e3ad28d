// SPDX-License-Identifier: Apache-2.0
//
// In one file: peers, memory and transfers are one book, which the checks compare.
#include "tests/hostile/bulk/port_host.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/integrity/convert.h"

namespace sluice::hostile::bulk_port {
namespace {

using bulk::TransferRequest;
using integrity::Guard;
using integrity::Protection;
using integrity::TransferKind;

constexpr int64_t kPeriodNs = 200 * kUs;
constexpr int64_t kGuestDeadlineNs = 10 * kMs;
constexpr int64_t kLateNs = 10 * kMs;  // a transfer's end, after all that may hold it up
constexpr Protection kCrc{.memory = Guard::kCrc32c, .wire = Guard::kCrc32c, .block_bytes = 512};

// Whole words.
void Fill(uint64_t seed, std::span<std::byte> to) {
  base::SeededRandom random(seed);
  for (size_t at = 0; at < to.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random.Next64();
    std::memcpy(&to[at], &word, sizeof(word));
  }
}

}  // namespace

// A peer, with the memory that is lent to it and the memory of one's own that transfers to it use.
struct PortHost::Link {
  uint32_t number = 0;
  bulk::PeerId peer;
  bool honest = false;
  bool up = true;  // the user has not heard otherwise
  bulk::Reach reach = bulk::Reach::kShared;
  PortHost* other = nullptr;  // of an honest one, and its link there
  uint32_t link_there = 0;

  std::optional<bulk::LeaseId> lent, local;
  std::optional<bulk::Capability> lent_there;  // what was lent, once it is
  std::optional<bulk::Capability> local_ready;
  std::optional<bulk::Capability> remote;  // that it has lent

  bulk::TransferId transfer = 0;  // under way
  TransferRequest request;
  int64_t began_ns = 0;
  int64_t next_ns = 0;
  uint64_t begun = 0;  // transfers to it
  uint64_t heard = 0;  // of its own
};

PortHost::PortHost(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
                   const bulk::PortOptions& options, Report* report)
    : Host(simulation, node, seed), options_(options), report_(report), dice_(seed + 77 * node) {
  const As as(simulation, node);
  auto port = bulk::Port::Create(*device_, clock_, random_, commands_, *this, options);
  if (!port.ok()) {
    Break(port.status().ToString());
    return;
  }
  port_ = *std::move(port);
  After(kPeriodNs, [this] { Tick(); });
}

PortHost::~PortHost() {
  const As as(simulation_, node_);
  commands_.Finish();
  port_.reset();
  device_.reset();
}

void PortHost::Break(const std::string& what) {
  report_->Break(absl::StrCat("host ", node_, ": ", what));
}

// ---- Peers

PortHost::Link& PortHost::NewLink(bulk::PeerId peer, bool honest, bulk::Reach reach) {
  auto link = std::make_unique<Link>();
  link->number = next_link_++;
  link->peer = peer;
  link->honest = honest;
  link->reach = reach;
  Link& its = *(links_[link->number] = std::move(link));
  Lend(its, /*local=*/false);
  Lend(its, /*local=*/true);
  return its;
}

PortHost::Link* PortHost::Find(bulk::PeerId peer) {
  for (auto& [number, link] : links_) {
    if (link->peer == peer) return link.get();
  }
  return nullptr;
}

void PortHost::Join(PortHost& one, PortHost& other, bulk::Reach reach) {
  std::string ticket, answer;
  Link* here = nullptr;
  Link* there = nullptr;
  {
    const As as(one.simulation_, one.node_);
    const auto peer = one.port_->Offer(&ticket, reach);
    if (!peer.ok()) return one.Break(peer.status().ToString());
    here = &one.NewLink(*peer, /*honest=*/true, reach);
  }
  {
    const As as(other.simulation_, other.node_);
    const auto peer = other.port_->Accept(ticket, &answer, reach);
    if (!peer.ok()) return other.Break(peer.status().ToString());
    there = &other.NewLink(*peer, /*honest=*/true, reach);
  }
  here->other = &other;
  here->link_there = there->number;
  there->other = &one;
  there->link_there = here->number;
  const As as(one.simulation_, one.node_);
  const absl::Status status = one.port_->Complete(here->peer, answer);
  if (!status.ok()) one.Break(status.ToString());
}

bool PortHost::ready() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& one) {
    return !one.second->honest || (one.second->lent_there && one.second->local_ready);
  });
}

absl::StatusOr<PortHost::Guest> PortHost::OfferGuest(bulk::Reach reach) {
  const As as(simulation_, node_);
  Guest guest;
  const auto peer = port_->Offer(&guest.ticket, reach);
  if (!peer.ok()) return peer.status();
  guest.link = NewLink(*peer, /*honest=*/false, reach).number;
  return guest;
}

absl::StatusOr<PortHost::Guest> PortHost::AcceptGuest(const std::string& ticket,
                                                      const std::string& capability,
                                                      bulk::Reach reach) {
  const As as(simulation_, node_);
  Guest guest;
  const auto peer = port_->Accept(ticket, &guest.ticket, reach);
  OnActivity(softdc::sim::Activity::kEvent);
  if (!peer.ok()) return peer.status();
  Link& link = NewLink(*peer, /*honest=*/false, reach);
  guest.link = link.number;
  const auto remote = bulk::LoadCapability(capability);
  if (remote.ok()) link.remote = *remote;
  return guest;
}

absl::Status PortHost::CompleteGuest(uint32_t number, const std::string& ticket,
                                     const std::string& capability) {
  const As as(simulation_, node_);
  const auto found = links_.find(number);
  if (found == links_.end() || !found->second->up) return absl::NotFoundError("it is down");
  Link& link = *found->second;
  const absl::Status status = port_->Complete(link.peer, ticket);
  OnActivity(softdc::sim::Activity::kEvent);
  const auto remote = bulk::LoadCapability(capability);
  if (status.ok() && remote.ok()) link.remote = *remote;
  return status;
}

std::optional<bulk::Capability> PortHost::LentTo(uint32_t number) const {
  const auto found = links_.find(number);
  return found == links_.end() ? std::nullopt : found->second->lent_there;
}

void PortHost::PutOut(uint32_t number) {
  const As as(simulation_, node_);
  const auto found = links_.find(number);
  if (found == links_.end() || !found->second->up) return;
  (void)port_->Disconnect(found->second->peer);  // it may be on its way down
  OnActivity(softdc::sim::Activity::kEvent);
}

std::vector<uint32_t> PortHost::guests() const {
  std::vector<uint32_t> all;
  for (const auto& [number, link] : links_) {
    if (!link->honest && link->up) all.push_back(number);
  }
  return all;
}

bool PortHost::IsUp(uint32_t number) const {
  const auto found = links_.find(number);
  return found != links_.end() && found->second->up;
}

void PortHost::Leave() {
  const As as(simulation_, node_);
  working_ = false;
  leaving_ = true;
  for (auto& [number, link] : links_) {
    if (link->up) (void)port_->Disconnect(link->peer);
  }
  OnActivity(softdc::sim::Activity::kEvent);
}

void PortHost::OnPeerDown(bulk::PeerId peer, const absl::Status& why) {
  Link* link = Find(peer);
  if (link == nullptr || !link->up) return Break("a peer went down that was not up");
  if (why.ok() || why.message().empty()) Break("a peer was ended without a reason");
  if (link->honest && !leaving_ && !link->other->leaving_) {
    Break(absl::StrCat("an honest peer was ended: ", why.ToString()));
  }
  if (link->transfer != 0) Break("a peer went down before a transfer with it had ended");
  if (!link->honest) ends_.push_back({link->number, why});
  link->up = false;
  link->remote.reset();
  ReturnLeases(*link);
  Forget(link->number);
}

// ---- Memory

void PortHost::Lend(Link& link, bool local) {
  Lease lease{.link = link.number, .memory = std::vector<std::byte>(kRegionBytes)};
  const uint8_t rights = bulk::kMayRead | bulk::kMayWrite;
  const auto id = link.reach == bulk::Reach::kOwn ? port_->Lend(lease.memory, rights, 0, link.peer)
                                                  : port_->leases().Lend(lease.memory, rights, 0);
  if (!id.ok()) {
    // It may be on its way down.
    if (link.honest) Break(absl::StrCat("memory was not lent: ", id.status().ToString()));
    return;
  }
  (local ? link.local : link.lent) = *id;
  leases_.emplace(Key(id->index, id->epoch), std::move(lease));
}

void PortHost::OnLent(bulk::LeaseId id, const absl::StatusOr<bulk::Capability>& capability) {
  const auto lease = leases_.find(Key(id.index, id.epoch));
  if (lease == leases_.end()) return Break("a lease was lent that nobody asked for");
  const auto found = links_.find(lease->second.link);
  if (!capability.ok()) {
    // The domain of a peer goes with it.
    if (found == links_.end() || (found->second->honest && !leaving_)) {
      Break(absl::StrCat("memory was not lent: ", capability.status().ToString()));
    }
    const uint32_t number = lease->second.link;
    leases_.erase(lease);
    return Forget(number);
  }
  if (found == links_.end()) return Break("a lease was lent after its end");
  Link& link = *found->second;
  if (link.lent == id) link.lent_there = *capability;
  if (link.local == id) link.local_ready = *capability;
  if (!link.honest || link.lent != id) return;
  Link& there = *link.other->links_.at(link.link_there);
  there.remote = *capability;
}

void PortHost::OnReturned(bulk::LeaseId id) {
  const auto lease = leases_.find(Key(id.index, id.epoch));
  if (lease == leases_.end()) return Break("a lease was returned that was not lent");
  const uint32_t number = lease->second.link;
  leases_.erase(lease);  // whoever writes there now writes into freed memory
  Forget(number);
}

void PortHost::TakeBackFrom(uint32_t number) {
  const As as(simulation_, node_);
  const auto found = links_.find(number);
  if (found == links_.end() || !found->second->up || !found->second->lent) return;
  Link& link = *found->second;
  (void)port_->leases().Return(*link.lent);
  link.lent.reset();
  link.lent_there.reset();
  Lend(link, /*local=*/false);
  OnActivity(softdc::sim::Activity::kEvent);
}

void PortHost::ReturnLeases(Link& link) {
  for (auto* lease : {&link.lent, &link.local}) {
    if (lease->has_value()) (void)port_->leases().Return(**lease);
    lease->reset();
  }
  link.lent_there.reset();
  link.local_ready.reset();
}

// Once it is down and all its memory is back.
void PortHost::Forget(uint32_t number) {
  const auto found = links_.find(number);
  const bool lent = std::any_of(leases_.begin(), leases_.end(),
                                [&](const auto& one) { return one.second.link == number; });
  if (found != links_.end() && !found->second->up && !lent) links_.erase(found);
}

// ---- Transfers

void PortHost::Tick() {
  for (auto& [number, link] : links_) {
    if (!working_ || !link->up || link->transfer != 0 || now_ns() < link->next_ns) continue;
    link->honest ? Work(*link) : WorkWithGuest(*link);
  }
  Flushed();
  After(kPeriodNs, [this] { Tick(); });
}

// Even ones write, odd ones read the same back; of four, two are protected.
void PortHost::Work(Link& link) {
  if (!link.remote || !link.local_ready) return;
  const uint64_t number = link.begun;
  const bool write = number % 2 == 0;
  TransferRequest& request = link.request;
  if (write) {
    request.protection = number % 4 == 0 || plain_ ? Protection() : kCrc;
    request.data_bytes = 512 * (1 + dice_.Below(64));
  }
  request.kind = write ? TransferKind::kWrite : TransferKind::kRead;
  request.local = *link.local;
  request.remote = *link.remote;
  request.tag = number;
  const std::span<std::byte> memory(leases_.at(Key(link.local->index, link.local->epoch)).memory);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  if (write) {
    std::vector<std::byte> data(request.data_bytes);
    Fill(node_ * 1'000'003 + number, data);
    if (IsPlain(request.protection)) {
      std::copy(data.begin(), data.end(), memory.begin());
    } else {
      Protect(request.protection, data,
              memory.first(MemoryBytes(request.protection, request.data_bytes)));
    }
  }
  const auto transfer = port_->Start(link.peer, request);
  if (!transfer.ok()) return Break(absl::StrCat("not started: ", transfer.status().ToString()));
  link.transfer = *transfer;
  link.began_ns = now_ns();
  ++link.begun;
  transfers_[*transfer] = link.number;
  ++open_;
}

void PortHost::WorkWithGuest(Link& link) {
  if (!link.remote || !link.local_ready) return;
  TransferRequest request;
  request.kind = dice_.Below(2) == 0 ? TransferKind::kWrite : TransferKind::kRead;
  if (dice_.Below(3) == 0) request.protection = kCrc;
  request.data_bytes = 512 * (1 + dice_.Below(64));
  request.local = *link.local;
  request.remote = *link.remote;
  request.deadline_ns = now_ns() + kGuestDeadlineNs;
  const auto transfer = port_->Start(link.peer, request);
  link.next_ns = now_ns() + kPeriodNs * static_cast<int64_t>(1 + dice_.Below(8));
  if (!transfer.ok()) return;
  link.transfer = *transfer;
  link.began_ns = now_ns();
  transfers_[*transfer] = link.number;
  ++open_;
  ++guest_transfers_;
  // After its deadline what was under way may take its time; then the peer is given up, and what was posted ends.
  After(kGuestDeadlineNs + options_.patience_ns + 3 * options_.dead_peer_ns + kLateNs,
        [this, id = *transfer] {
          if (transfers_.contains(id)) Break("a transfer to a hostile peer did not end");
        });
}

void PortHost::OnTransferred(bulk::TransferId transfer, const absl::Status& status) {
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end()) return Break("a transfer ended that was not open");
  Link& link = *links_.at(found->second);
  transfers_.erase(found);
  --open_;
  if (!link.up) Break("a transfer ended after its peer");
  link.transfer = 0;
  if (!link.honest) return;
  ++moved_;
  took_.push_back({link.began_ns, now_ns() - link.began_ns});
  if (!leaving_ && !link.other->leaving_) Check(link, status);
}

void PortHost::Check(Link& link, const absl::Status& status) {
  if (!status.ok()) return Break(absl::StrCat("an honest transfer failed: ", status.ToString()));
  const TransferRequest& request = link.request;
  const size_t bytes = MemoryBytes(request.protection, request.data_bytes);
  const std::span<const std::byte> here(
      leases_.at(Key(link.local->index, link.local->epoch)).memory);
  const Link& at_other = *link.other->links_.at(link.link_there);
  const std::span<const std::byte> there(
      link.other->leases_.at(Key(at_other.lent->index, at_other.lent->epoch)).memory);
  if (std::memcmp(here.data(), there.data(), bytes) != 0) {
    return Break("an honest transfer ended with other bytes");
  }
  if (request.kind == TransferKind::kRead) {
    std::vector<std::byte> data(request.data_bytes), expected(bytes);
    Fill(node_ * 1'000'003 + link.begun - 2, data);
    if (IsPlain(request.protection)) {
      expected = data;
    } else {
      Protect(request.protection, data, expected);
    }
    if (std::memcmp(here.data(), expected.data(), bytes) != 0) {
      return Break("what was written was not read back");
    }
  }
}

void PortHost::OnArrival(bulk::PeerId peer, const bulk::Arrival& arrival) {
  Link* link = Find(peer);
  if (link == nullptr || !link->up) return Break("an arrival of a peer that is not up");
  if (!link->honest || leaving_ || link->other->leaving_) return;
  if (!arrival.status.ok()) {
    return Break(absl::StrCat("an honest arrival failed: ", arrival.status.ToString()));
  }
  const Link& its = *link->other->links_.at(link->link_there);
  if (arrival.tag != link->heard++ || !(arrival.lease == *link->lent) ||
      (arrival.tag + 1 == its.begun && arrival.data_bytes != its.request.data_bytes)) {
    Break(absl::StrCat("arrival ", arrival.tag, " with ", arrival.data_bytes, " bytes came for ",
                       link->heard - 1));
  }
}

}  // namespace sluice::hostile::bulk_port

// SPDX-License-Identifier: Apache-2.0
//
// The process, its personas, and what comes in. hostile_port_acts.cc has what it does.
#include "tests/hostile/bulk/hostile_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/hostile/bulk/persona.h"
#include "tests/hostile/lies.h"

namespace sluice::hostile::bulk_port {
namespace {

using onesided::WordKind;
using softdc::sim::Simulation;

constexpr uint32_t kSlots = 1024;
constexpr uint32_t kSlotBytes = 1024;
constexpr uint32_t kControlSlots = 64;
constexpr uint32_t kBulkSlots = 64;
constexpr uint32_t kReceiveDepth = 512;
constexpr uint64_t kKey = 0x5eed;
constexpr int64_t kDeadPeerNs = 10 * kMs;
constexpr uint32_t kLease = 1;
// Its victim is careful, as far as a user can be: it has so many guests, and no more.
constexpr size_t kMostGuests = 6;

}  // namespace

HostilePort::HostilePort(Simulation& simulation, uint32_t node, uint64_t seed, PortHost& victim,
                         bulk::Reach reach)
    : Host(simulation, node, seed), victim_(victim), reach_(reach) {
  const As as(simulation, node);
  const verbs::VerbsApi& api = device_->api();
  send_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
  receive_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
  receive_ = *receive::ReceiveQueue::Create(
      *device_, receive_cq_.get(),
      {.depth = kReceiveDepth,
       .buffer_bytes = 256,
       .access_key = kKey,
       .remote_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE});
  memory_ = *memory::Slab::Create(api, device_->pd(), (kSlots + kControlSlots) * kSlotBytes,
                                  IBV_ACCESS_LOCAL_WRITE);
  lent_ = *memory::Slab::Create(
      api, device_->pd(), kRegionBytes,
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  slots_.emplace(memory_.data(), kSlots, kSlotBytes, memory_.data() + kSlots * kSlotBytes,
                 kControlSlots, kSlotBytes, kBulkSlots);
  queue_ = *queue::DciPool::Create(*device_, send_cq_.get(), *slots_, memory_.lkey(),
                                   {.dead_peer_ns = kDeadPeerNs}, commands_, *this);
}

HostilePort::~HostilePort() {
  const As as(simulation_, node_);
  commands_.Finish();
  for (auto* all : {&personas_, &retired_}) {
    for (auto& persona : *all) {
      if (persona->has_target) queue_->Close(&persona->target);
      persona->queue.reset();
      persona->closed.clear();
    }
  }
  queue_.reset();
  personas_.clear();
  retired_.clear();
  receive_.reset();
  memory_ = {};
  lent_ = {};
  send_cq_ = {};
  receive_cq_ = {};
  device_.reset();
}

// ---- The loop

int HostilePort::Poll() {
  int count = commands_.Drain() + queue_->Poll(/*thorough=*/true);
  ibv_wc wc;
  while (ibv_poll_cq(receive_cq_.get(), 1, &wc) > 0) {
    ++count;
    OnReceived(wc);
  }
  for (uint32_t i = 0; i < personas_.size(); ++i) {
    Persona& persona = *personas_[i];
    if (persona.queue_connected && !persona.queue_down) count += persona.queue->Poll();
    if (persona.failed || (persona.is_up && !victim_.IsUp(persona.link))) Retire(i);
  }
  for (auto& persona : personas_) {
    if (!persona->is_up) continue;
    const uint32_t owed = persona->consumed - persona->told;
    const bool say =
        script_.manners.granting == Granting::kAlways
            ? owed != 0 && owed * 2 >= script_.manners.window
            : script_.manners.granting == Granting::kSlowly && owed >= script_.manners.window;
    if (say) Send(*persona, WordKind::kGrant, {});
  }
  queue_->Flush();
  return count;
}

void HostilePort::Play(const Script& script, std::function<void()> over) {
  script_ = script;
  on_over_ = std::move(over);
  for (uint32_t i = 0; i < script.manners.personas; ++i) {
    personas_.push_back(std::make_unique<Persona>());
  }
  After(1, [this] { DoNext(); });
}

void HostilePort::DoNext() {
  if (next_ == script_.acts.size()) return End();
  const Act& act = script_.acts[next_++];
  Do(act);
  queue_->Flush();
  Flushed();
  // The first ones join: the others are of those who are up, if they come up at all.
  const bool settle = next_ == script_.manners.personas;
  After(1 + act.pause_ns + (settle ? kMs : 0), [this] { DoNext(); });
}

void HostilePort::End() {
  switch (script_.ending) {
    case Ending::kGoodbye:
      for (auto& persona : personas_) {
        if (persona->is_up) Send(*persona, WordKind::kGoodbye, {});
      }
      break;
    case Ending::kHangUp:
      for (auto& persona : personas_) {
        if (persona->queue != nullptr) persona->queue->Fail(absl::UnavailableError("hung up"));
      }
      break;
    case Ending::kSilence:
      Stop();
      break;
    case Ending::kKill:
      Stop();
      simulation_.Kill(node_);
      break;
    case Ending::kPortDown:
      Stop();
      simulation_.PortDown(node_);
      break;
  }
  queue_->Flush();
  on_over_();
}

std::vector<std::string> HostilePort::OffendersUp() const {
  std::vector<std::string> all;
  for (const auto* personas : {&personas_, &retired_}) {
    for (const auto& persona : *personas) {
      if (!persona->offence.empty() && victim_.IsUp(persona->link)) all.push_back(persona->offence);
    }
  }
  return all;
}

// ---- Joining

std::string HostilePort::MakeTicket(Persona& persona, uint32_t number, base::SeededRandom* lies) {
  persona.token = ++tokens_;
  persona.window = script_.manners.window;
  bulk::Ticket ticket{.port = 1 + node_,
                      .piece_bytes = script_.manners.piece_bytes,
                      .way = {.dctn = receive_->dctn(),
                              .access_key = kKey,
                              .place = number,
                              .token = persona.token,
                              .window = persona.window}};
  const ibv_gid gid = Simulation::Gid(node_);
  std::memcpy(ticket.way.gid.data(), gid.raw, ticket.way.gid.size());
  const auto mirror = lies != nullptr && persona.there.token != 0;
  switch (lies == nullptr ? 99 : lies->Below(11)) {
    case 0:
      ticket.port = Twist(ticket.port, *lies);
      break;
    case 1:
      ticket.piece_bytes = static_cast<uint32_t>(Twist(ticket.piece_bytes, *lies));
      break;
    case 2:
      ticket.way.gid[lies->Below(16)] ^= std::byte{1};
      break;
    case 3:
      ticket.way.dctn = static_cast<uint32_t>(Twist(ticket.way.dctn, *lies));
      break;
    case 4:
      ticket.way.access_key = Twist(ticket.way.access_key, *lies);
      break;
    case 5:
      ticket.way.place = static_cast<uint32_t>(Twist(ticket.way.place, *lies));
      break;
    case 6:
      ticket.way.token = Twist(ticket.way.token, *lies);
      break;
    case 7:
      ticket.way.window = static_cast<uint32_t>(Twist(ticket.way.window, *lies));
      break;
    case 8:
      // The victim itself: what it says to this persona, it hears as said by this persona.
      if (mirror) ticket.way = persona.there;
      break;
    case 9: {
      std::string bytes = ToBytes(ticket);
      bytes[lies->Below(bytes.size())] ^= static_cast<char>(1u << lies->Below(8));
      return bytes;
    }
    case 10:
      return ToBytes(ticket).substr(0, lies->Below(bulk::kTicketBytes));
    default:
      break;
  }
  return ToBytes(ticket);
}

std::string HostilePort::MakeCapability(base::SeededRandom* lies) {
  bulk::Capability capability{.port = 1 + node_,
                              .address = reinterpret_cast<uint64_t>(lent_.data()),
                              .length_bytes = kRegionBytes,
                              .key = lent_.rkey(),
                              .lease = kLease,
                              .epoch = 1,
                              .rights = bulk::kMayRead | bulk::kMayWrite};
  switch (lies == nullptr ? 99 : lies->Below(6)) {
    case 0:
      capability.address = Twist(capability.address, *lies);
      break;
    case 1:
      capability.length_bytes = Twist(capability.length_bytes, *lies);
      break;
    case 2:
      capability.key = static_cast<uint32_t>(Twist(capability.key, *lies));
      break;
    case 3:
      capability.lease = static_cast<uint32_t>(Twist(capability.lease, *lies));
      break;
    case 4:
      capability.rights = static_cast<uint8_t>(lies->Below(4));
      break;
    default:
      break;
  }
  return ToBytes(capability);
}

// It knows from the ticket where to send to.
bool HostilePort::MeetVictim(Persona& persona, const std::string& bytes) {
  const auto ticket = bulk::LoadTicket(bytes);
  if (!ticket.ok()) return false;
  persona.there = ticket->way;
  persona.granted = ticket->way.window;
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = device_->path().port;
  attr.grh.sgid_index = device_->path().sgid_index;
  attr.grh.hop_limit = 64;
  std::memcpy(attr.grh.dgid.raw, ticket->way.gid.data(), ticket->way.gid.size());
  persona.handle = {&device_->api(), device_->api().create_ah(device_->pd(), &attr)};
  if (!persona.handle) return false;
  persona.target.ah = persona.handle.get();
  persona.target.dctn[0] = persona.target.dctn[1] = ticket->way.dctn;
  persona.target.key[0] = persona.target.key[1] = ticket->way.access_key;
  persona.target.unacknowledged = UINT32_MAX;
  queue_->Open(&persona.target);
  persona.has_target = true;
  return true;
}

void HostilePort::Join(uint32_t number, bool lying, base::SeededRandom& dice) {
  // Who is up stays, mostly.
  if (personas_[number]->is_up && !OneIn(dice, 3)) return;
  if (victim_.guests().size() >= kMostGuests) return;
  Retire(number);
  Persona& persona = *personas_[number];
  base::SeededRandom* const ticket_lies = lying && OneIn(dice, 2) ? &dice : nullptr;
  base::SeededRandom* const other_lies = lying && ticket_lies == nullptr ? &dice : nullptr;
  if (OneIn(dice, 2)) {
    // The victim offers.
    const auto guest = victim_.OfferGuest(reach_);
    if (!guest.ok()) return;
    persona.link = guest->link;
    if (!MeetVictim(persona, guest->ticket)) return;
    // It may speak before its ticket has come.
    persona.is_up = true;
    if (lying && OneIn(dice, 4)) return;
    const absl::Status status = victim_.CompleteGuest(
        guest->link, MakeTicket(persona, number, ticket_lies), MakeCapability(other_lies));
    if (!status.ok()) return;
  } else {
    const auto guest = victim_.AcceptGuest(MakeTicket(persona, number, ticket_lies),
                                           MakeCapability(other_lies), reach_);
    if (!guest.ok()) return;
    persona.link = guest->link;
    if (!MeetVictim(persona, guest->ticket)) return;
    persona.is_up = true;
  }
  ++joined_;
}

// Somebody new takes its number; what is under way still names the old one.
void HostilePort::Retire(uint32_t number) {
  auto& place = personas_[number];
  if (place->has_target) queue_->Close(&place->target);
  if (place->queue != nullptr) place->queue->Fail(absl::UnavailableError("retired"));
  place->is_up = false;
  place->queue_connected = false;
  retired_.push_back(std::move(place));
  place = std::make_unique<Persona>();
}

void HostilePort::OnTargetFailed(queue::Target* target, const absl::Status&) {
  for (auto& persona : personas_) {
    if (&persona->target == target) persona->failed = true;
  }
}

void HostilePort::OnSent(queue::Target* target, uint32_t slot, bool ok) {
  const auto node = offences_.extract(slot);
  if (!ok || node.empty()) return;
  for (auto* all : {&personas_, &retired_}) {
    for (auto& persona : *all) {
      if (&persona->target == target) persona->offence = node.mapped();
    }
  }
}

// ---- What comes in

void HostilePort::OnReceived(const ibv_wc& wc) {
  const auto index = static_cast<uint32_t>(wc.wr_id);
  const std::span<const std::byte> whole(receive_->buffer(index), wc.byte_len);
  if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV) {
    const auto head = onesided::LoadHead(whole);
    if (head.has_value() && head->place < personas_.size() &&
        personas_[head->place]->token == head->token) {
      Persona& persona = *personas_[head->place];
      persona.granted = head->granted;
      if (head->kind == WordKind::kWord && head->sequence == persona.consumed) {
        ++persona.consumed;
        OnWord(persona, whole.subspan(onesided::kHeadBytes));
      }
    }
  }
  if (script_.manners.reads) receive_->Recycle(index);
}

void HostilePort::OnWord(Persona& persona, std::span<const std::byte> bytes) {
  using Kind = bulk::PortWord::Kind;
  const auto word = bulk::LoadPortWord(bytes);
  if (!word.has_value()) return;
  if (word->kind == Kind::kQueue) persona.queue_there = *word;
  if (!script_.manners.answers) return;
  if (word->kind == Kind::kQueue) {
    if (persona.queue != nullptr || MakeQueue(persona)) ConnectQueue(persona);
  } else if (word->kind == Kind::kClose) {
    CloseQueue(persona);
    Say(persona, {.kind = Kind::kClosed});
  }
}

}  // namespace sluice::hostile::bulk_port

// SPDX-License-Identifier: Apache-2.0
//
// Peers and transfers of one's own. What the other sides do is in arrivals.cc.
#include "middleware/bulk/port.h"

#include <algorithm>
#include <utility>

#include "middleware/bulk/peer.h"
#include "transport/base/error.h"

namespace sluice::bulk {
namespace {

using integrity::Guard;
using integrity::MemoryBytes;
using integrity::MismatchError;
using integrity::MismatchOf;
using integrity::WireBytes;
using Kind = integrity::Transfer::Kind;

constexpr int kPieceBits = 20;
static_assert(kMaxPieces == 1u << kPieceBits);
// The event descriptor costs a system call: it is looked at now and then.
constexpr uint64_t kEventPasses = 16;

// Buffers for notices. More than the peer may have under way: it goes on while this side looks at what came.
uint32_t NoticeBuffers(const PortOptions& options) {
  constexpr uint32_t kMost = 1024;
  return std::max(options.max_pieces_in_flight, std::min(16 * options.max_pieces_in_flight, kMost));
}

absl::Status Refused(absl::StatusCode code, const std::string& what, std::string_view cause = "",
                     std::string_view remedy = "") {
  return base::Error(code, what,
                     {.layer = "bulk", .operation = "transfer", .cause = cause, .remedy = remedy});
}

absl::Status NoPeer() {
  return Refused(absl::StatusCode::kNotFound, "no such peer",
                 "it is down, or was given up for another", "join the two ports again");
}

TransferId TransferOf(uint64_t cookie) { return cookie >> kPieceBits; }
uint32_t PieceOf(uint64_t cookie) { return cookie & (kMaxPieces - 1); }

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> Port::Create(device::Device& device, base::Clock& clock,
                                                   base::Random& random, poller::Commands& commands,
                                                   PortUser& user, const PortOptions& options) {
  const bool whole = options.piece_bytes != 0 && options.piece_bytes % 4096 == 0;
  if (!whole || options.piece_bytes > (1u << 30) || options.max_peers == 0 ||
      options.max_leases == 0 || options.max_transfers == 0 || options.max_pieces_in_flight == 0 ||
      options.max_pieces_in_flight > (1u << 14) || options.patience_ns < 0 ||
      options.watch_ns <= 0) {
    return Refused(absl::StatusCode::kInvalidArgument, "these port options can't be",
                   whole ? "a bound is zero or absurd"
                         : "pieces of " + std::to_string(options.piece_bytes) +
                               " bytes are not whole blocks of 4096");
  }
  const uint64_t number = random.Next64() | 1;  // not 0
  std::unique_ptr<Port> port(new Port(device, clock, commands, user, options, number));
  absl::Status status = port->Init();
  if (!status.ok()) return status;
  return port;
}

Port::Port(device::Device& device, base::Clock& clock, poller::Commands& commands, PortUser& user,
           const PortOptions& options, uint64_t number)
    : device_(device),
      clock_(clock),
      commands_(commands),
      user_(user),
      options_(options),
      number_(number),
      leases_(device, commands, user, number, options.max_leases),
      peers_(options.max_peers) {
  for (auto& peer : peers_) peer = std::make_unique<Peer>(*this);
  for (uint32_t i = 0; i < peers_.size(); ++i) peers_[i]->id.index = i;
}

absl::Status Port::Init() {
  auto poller = poller::Poller::Create();
  if (!poller.ok()) return poller.status();
  poller_ = *std::move(poller);
  auto announcements = integrity::Announcements::Create(device_);
  if (!announcements.ok()) return announcements.status();
  announcements_ = *std::move(announcements);
  // The pass that follows looks at everything; these are here to wake it.
  absl::Status status = poller_->Watch(announcements_->fd(), [this] { announcements_->Drain(); });
  if (status.ok()) status = poller_->Watch(device_.async_fd(), [] {});
  if (status.ok() && commands_.fd() >= 0) status = poller_->Watch(commands_.fd(), [] {});
  return status;
}

Port::~Port() = default;

Port::Peer* Port::Find(PeerId id) const {
  if (id.index >= peers_.size() || id.generation == 0) return nullptr;
  Peer* peer = peers_[id.index].get();
  const bool alive = peer->state == Peer::State::kOffered || peer->state == Peer::State::kUp;
  return alive && peer->id == id ? peer : nullptr;
}

// A free place; else the peer that was not used for the longest time and has nothing open is given up, and its
// place is free a little later.
absl::StatusOr<Port::Peer*> Port::NewPeer() {
  Peer* free = nullptr;
  Peer* oldest = nullptr;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kFree) free = peer.get();
    const bool idle =
        peer->state == Peer::State::kUp && peer->outgoing.empty() && peer->incoming.empty();
    if (idle && (oldest == nullptr || peer->used < oldest->used)) oldest = peer.get();
  }
  if (free == nullptr) {
    if (oldest != nullptr) {
      ++counters_.evicted;
      oldest->queue->Fail(Refused(absl::StatusCode::kUnavailable, "this peer was given up",
                                  "it was not used for the longest time", "join the ports again"));
    }
    return Refused(absl::StatusCode::kResourceExhausted,
                   "all " + std::to_string(peers_.size()) + " ways to peers are taken",
                   oldest == nullptr ? "all of them are in use" : "one is being given up",
                   "try again soon, or raise max_peers");
  }
  auto queue = integrity::SignedQueue::Create(device_, commands_, *free,
                                              {.max_open = options_.max_pieces_in_flight,
                                               .max_replies = NoticeBuffers(options_),
                                               .max_transfer_bytes = options_.piece_bytes,
                                               .peer = "port " + std::to_string(free->id.index),
                                               .offload = options_.offload,
                                               .pipelining = options_.pipelining,
                                               .channel = announcements_->channel()});
  if (!queue.ok()) return queue.status();
  free->queue = *std::move(queue);
  if (++free->id.generation == 0) ++free->id.generation;
  free->state = Peer::State::kOffered;
  free->why = absl::OkStatus();
  free->used = ++uses_;
  free->next_number = free->next_arrival = 0;
  return free;
}

absl::Status Port::Connect(Peer& peer, const Ticket& ticket) {
  absl::Status status = peer.queue->Connect({.number = ticket.qp_number, .gid = ticket.gid});
  if (!status.ok()) return status;
  peer.number = ticket.port;
  peer.notices = ticket.notices;
  peer.state = Peer::State::kUp;
  return absl::OkStatus();
}

absl::StatusOr<PeerId> Port::Offer(std::string* ticket) {
  auto peer = NewPeer();
  if (!peer.ok()) return peer.status();
  const integrity::QueueAddress address = (*peer)->queue->address();
  *ticket = ToBytes(Ticket{.port = number_,
                           .qp_number = address.number,
                           .notices = options_.max_pieces_in_flight,
                           .gid = address.gid});
  return (*peer)->id;
}

absl::StatusOr<PeerId> Port::Accept(std::string_view ticket, std::string* answer) {
  auto theirs = LoadTicket(ticket);
  if (!theirs.ok()) return theirs.status();
  auto id = Offer(answer);
  if (!id.ok()) return id.status();
  Peer& peer = *Find(*id);
  absl::Status status = Connect(peer, *theirs);
  if (!status.ok()) {
    peer.queue->Fail(status);
    return status;
  }
  return *id;
}

absl::Status Port::Complete(PeerId id, std::string_view ticket) {
  Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  if (peer->state != Peer::State::kOffered) {
    return Refused(absl::StatusCode::kFailedPrecondition, "this peer is joined already");
  }
  auto theirs = LoadTicket(ticket);
  if (!theirs.ok()) return theirs.status();
  absl::Status status = Connect(*peer, *theirs);
  if (!status.ok()) peer->queue->Fail(status);
  return status;
}

absl::Status Port::Disconnect(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return NoPeer();
  peer->queue->Fail(Refused(absl::StatusCode::kUnavailable, "this side has left the peer"));
  return absl::OkStatus();
}

integrity::Mode Port::mode(PeerId id) const {
  const Peer* peer = Find(id);
  return peer == nullptr ? integrity::Mode::kSoftware : peer->queue->mode();
}

absl::Status Port::CheckRequest(const Peer& peer, const TransferRequest& request) const {
  absl::Status status = Validate(request.protection, request.data_bytes);
  if (!status.ok()) return status;
  const Capability& remote = request.remote;
  if (remote.port != peer.number) {
    return Refused(absl::StatusCode::kPermissionDenied, "the capability is of another peer",
                   "it was given away by a port that this peer is not",
                   "use it with the peer that lent the memory");
  }
  const uint8_t right = request.kind == Kind::kWrite ? kMayWrite : kMayRead;
  if ((remote.rights & right) == 0) {
    return Refused(absl::StatusCode::kPermissionDenied,
                   right == kMayWrite ? "the capability is not for writing"
                                      : "the capability is not for reading",
                   "its lender gave no such right", "ask for another lease");
  }
  const uint64_t wire_bytes = WireBytes(request.protection, request.data_bytes);
  if (request.remote_offset > remote.length_bytes ||
      wire_bytes > remote.length_bytes - request.remote_offset) {
    return Refused(absl::StatusCode::kOutOfRange,
                   std::to_string(wire_bytes) + " bytes from " +
                       std::to_string(request.remote_offset) + " on are not all in the " +
                       std::to_string(remote.length_bytes) + " that were lent",
                   "protected blocks take their signatures' room as well",
                   "move less, or ask for a longer lease");
  }
  if (!IsPlain(request.protection)) {
    const uint32_t block_bytes = request.protection.block_bytes;
    const auto misaligned = [&](uint64_t offset, Guard guard) {
      return offset % (block_bytes + integrity::SignatureBytes(guard)) != 0;
    };
    const bool here = misaligned(request.local_offset, request.protection.memory);
    if (here || misaligned(request.remote_offset, request.protection.wire)) {
      return Refused(
          absl::StatusCode::kInvalidArgument,
          std::string(here ? "the local" : "the remote") + " offset is not the start of a block",
          "blocks of " + std::to_string(block_bytes) +
              " bytes stand one behind the other, each with its signature",
          "begin the transfer where a block does");
    }
  }
  if ((request.data_bytes - 1) / options_.piece_bytes >= kMaxPieces) {
    return Refused(absl::StatusCode::kInvalidArgument, "the transfer has too many pieces", "",
                   "raise piece_bytes, or move less at once");
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferId> Port::Start(PeerId id, const TransferRequest& request) {
  Peer* peer = Find(id);
  if (peer == nullptr || peer->state != Peer::State::kUp) return NoPeer();
  absl::Status status = CheckRequest(*peer, request);
  if (!status.ok()) return status;
  status = peer->queue->Supports(request.protection);
  if (!status.ok()) return status;
  if (transfers_.size() >= options_.max_transfers) {
    return Refused(absl::StatusCode::kResourceExhausted,
                   std::to_string(options_.max_transfers) + " transfers are open", "",
                   "wait until one has ended, or raise max_transfers");
  }
  auto memory = leases_.Use(request.local, request.local_offset,
                            MemoryBytes(request.protection, request.data_bytes));
  if (!memory.ok()) return memory.status();
  auto out = std::make_unique<Outgoing>();
  out->id = next_transfer_++;
  out->request = request;
  out->memory = *memory;
  out->number = peer->next_number++;
  out->pieces = static_cast<uint32_t>((request.data_bytes - 1) / options_.piece_bytes + 1);
  peer->outgoing.push_back(out.get());
  peer->used = ++uses_;
  ++counters_.transfers;
  const TransferId transfer = out->id;
  transfers_.emplace(transfer, std::move(out));
  return transfer;
}

absl::Status Port::Cancel(TransferId transfer) {
  const auto found = transfers_.find(transfer);
  if (found == transfers_.end()) {
    return Refused(absl::StatusCode::kNotFound, "no such transfer", "it has ended");
  }
  absl::Status& status = found->second->status;
  if (status.ok()) {
    status = Refused(absl::StatusCode::kCancelled, "the transfer was cancelled by this side");
  }
  return absl::OkStatus();
}

uint64_t Port::Progress(TransferId transfer) const {
  const auto found = transfers_.find(transfer);
  return found == transfers_.end() ? 0 : found->second->moved_bytes;
}

bool Port::idle() const {
  if (!transfers_.empty() || leases_.active() != 0) return false;
  return std::ranges::all_of(peers_, [](const auto& peer) {
    if (peer->state == Peer::State::kDown || peer->state == Peer::State::kBuried) return false;
    return peer->queue == nullptr || peer->queue->state() == integrity::QueueState::kRunning;
  });
}

uint64_t Port::PieceBytes(const Outgoing& out, uint32_t piece) const {
  const uint64_t before = uint64_t{piece} * options_.piece_bytes;
  return std::min<uint64_t>(options_.piece_bytes, out.request.data_bytes - before);
}

Notice Port::NoticeOf(const Outgoing& out, uint32_t piece) const {
  const uint64_t before = uint64_t{piece} * options_.piece_bytes;
  Notice notice;
  notice.number = out.number;
  notice.piece = piece;
  notice.pieces = out.pieces;
  notice.kind = out.request.kind;
  notice.lease = out.request.remote.lease;
  notice.epoch = out.request.remote.epoch;
  notice.first_block = static_cast<uint32_t>(before / out.request.protection.block_bytes);
  notice.offset = out.request.remote_offset + WireBytes(out.request.protection, before);
  notice.data_bytes = PieceBytes(out, piece);
  notice.tag = out.request.tag;
  notice.protection = out.request.protection;
  notice.protection.reference_tag += notice.first_block;
  return notice;
}

absl::Status Port::PostPiece(Peer& peer, Outgoing& out) {
  const uint32_t piece = out.posted;
  const uint64_t before = uint64_t{piece} * options_.piece_bytes;
  const Notice notice = NoticeOf(out, piece);
  std::byte reply[kNoticeBytes];
  Store(notice, reply);
  integrity::Transfer transfer;
  transfer.kind = out.request.kind;
  transfer.protection = notice.protection;
  transfer.memory = out.memory.data + MemoryBytes(out.request.protection, before);
  transfer.lkey = out.memory.lkey;
  transfer.remote_address = out.request.remote.address + notice.offset;
  transfer.rkey = out.request.remote.key;
  transfer.data_bytes = notice.data_bytes;
  transfer.reply = reply;
  transfer.cookie = out.id << kPieceBits | piece;
  return peer.queue->Post(transfer);
}

absl::Status Port::TellRest(Peer& peer, Outgoing& out) {
  Notice notice = NoticeOf(out, out.posted);
  notice.outcome = Outcome::kCancelled;
  std::byte reply[kNoticeBytes];
  Store(notice, reply);
  return peer.queue->Tell(reply, out.id << kPieceBits | out.posted);
}

// As many pieces as the peer takes notices, the eldest transfers first. Writes by halves of that, because the queue may wait
// at the end of what is posted together (SignedQueue::Flush()): one piece at a time would cost a round trip each.
void Port::Pump(Peer& peer) {
  const uint32_t limit = std::min(options_.max_pieces_in_flight, peer.notices);
  const bool half = peer.queue->open() > limit / 2;
  for (Outgoing* out : peer.outgoing) {
    if (half && out->request.kind == Kind::kWrite) return;
    while (out->posted < out->pieces && !out->told) {
      if (peer.queue->open() >= limit) return;
      const bool stopped = !out->status.ok();
      if (!(stopped ? TellRest(peer, *out) : PostPiece(peer, *out)).ok()) return;  // it has failed
      ++out->under_way;
      if (stopped) {
        out->told = true;
      } else {
        ++out->posted;
        ++counters_.pieces;
      }
    }
  }
}

uint32_t Port::OnMismatch(uint64_t cookie, const integrity::Mismatch& mismatch,
                          std::span<std::byte> room) {
  const Outgoing& out = *transfers_.at(TransferOf(cookie));
  Notice notice = NoticeOf(out, PieceOf(cookie));
  notice.outcome = Outcome::kMismatch;
  notice.mismatch = mismatch;
  Store(notice, room.data());
  ++counters_.mismatches;
  return kNoticeBytes;
}

void Port::OnPieceEnd(uint64_t cookie, const absl::Status& status) {
  Outgoing& out = *transfers_.at(TransferOf(cookie));
  const uint32_t piece = PieceOf(cookie);
  --out.under_way;
  if (status.ok()) {
    if (piece < out.posted) out.moved_bytes += PieceBytes(out, piece);
    return;
  }
  auto mismatch = MismatchOf(status);
  if (!mismatch) {
    if (!out.status.ok()) return;
    const bool denied = absl::IsPermissionDenied(status);
    out.status = denied
                     ? Refused(absl::StatusCode::kPermissionDenied, "the capability holds no more",
                               "its lender took the memory back, or its time is over",
                               "ask for another lease, and join the ports again")
                     : status;
    return;
  }
  // The first wrong block of the transfer, of all that are known.
  mismatch->block += NoticeOf(out, piece).first_block;
  const auto known = MismatchOf(out.status);
  if (known && known->block <= mismatch->block) return;
  out.status = MismatchError(*mismatch, "");
}

void Port::CheckTime(Peer& peer, int64_t now_ns) {
  for (Outgoing* out : peer.outgoing) {
    const int64_t deadline_ns = out->request.deadline_ns;
    if (out->status.ok() && deadline_ns != 0 && now_ns >= deadline_ns) {
      out->status =
          Refused(absl::StatusCode::kDeadlineExceeded, "the transfer was not done by its deadline",
                  "the peer or the way to it is slow, or gone", "give it more time");
    }
    if (out->status.ok()) continue;
    if (out->patience_end_ns == 0) {
      out->patience_end_ns = now_ns + options_.patience_ns;
    } else if (now_ns >= out->patience_end_ns) {
      peer.queue->Fail(Refused(absl::StatusCode::kUnavailable,
                               "pieces of a transfer that was stopped do not end",
                               "the peer hangs, or is gone", "join the ports again"));
    }
  }
}

// Tells of what has ended. The user may start more meanwhile.
void Port::Sweep(Peer& peer) {
  const bool down = peer.state == Peer::State::kDown;
  std::vector<Outgoing*> ended;
  std::erase_if(peer.outgoing, [&](Outgoing* out) {
    const bool all = out->posted == out->pieces || out->told;
    if (!down && (!all || out->under_way != 0)) return false;
    ended.push_back(out);
    return true;
  });
  for (Outgoing* out : ended) {
    if (down && out->posted != out->pieces && out->status.ok()) out->status = peer.why;
    const absl::Status status = out->status;
    const TransferId id = out->id;
    leases_.Unuse(out->request.local);
    transfers_.erase(id);
    user_.OnTransferred(id, status);
  }
}

// What is left of a queue is freed where that may block.
void Port::Bury(Peer& peer) {
  peer.state = Peer::State::kBuried;
  peer.incoming.clear();
  commands_.Submit([queue = &peer.queue] { queue->reset(); },
                   [&peer] { peer.state = Peer::State::kFree; });
  user_.OnPeerDown(peer.id, peer.why);
}

void Port::PollEvents(int64_t now_ns) {
  const bool watch = now_ns >= watch_at_ns_;
  if (watch) watch_at_ns_ = now_ns + options_.watch_ns;
  if (!watch && !look_at_fds_ && ++passes_ % kEventPasses != 0) return;
  device_.ReadAsyncEvents([this](const device::DeviceEvent& event) {
    for (const auto& peer : peers_) {
      if (peer->state == Peer::State::kUp) peer->queue->OnDeviceEvent(event);
    }
  });
  if (!watch) return;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kUp) peer->queue->Watch();
  }
}

// Armed first: what comes after the pass below raises an event, what came before it is seen by it.
bool Port::PrepareToSleep() {
  for (const auto& peer : peers_) {
    if (peer->queue != nullptr && peer->state == Peer::State::kUp) peer->queue->Arm();
  }
  look_at_fds_ = true;
  const bool nothing = Poll() == 0;
  look_at_fds_ = true;
  return nothing;
}

int64_t Port::SleepLimitNs() const {
  int64_t wake_ns = leases_.NextEndNs();
  const auto sooner = [&wake_ns](int64_t ns) {
    if (ns != 0 && (wake_ns == 0 || ns < wake_ns)) wake_ns = ns;
  };
  for (const auto& peer : peers_) {
    if (peer->state != Peer::State::kUp) continue;
    if (peer->queue->open() != 0) sooner(watch_at_ns_);
    for (const Outgoing* out : peer->outgoing) {
      sooner(out->status.ok() ? out->request.deadline_ns : out->patience_end_ns);
    }
  }
  return wake_ns == 0 ? -1 : std::max<int64_t>(wake_ns - clock_.NowNs(), 0);
}

int Port::Poll() {
  if (look_at_fds_) poller_->Check();
  int done = commands_.Drain();
  const int64_t now_ns = clock_.NowNs();
  leases_.Poll(now_ns);
  PollEvents(now_ns);
  look_at_fds_ = false;
  for (const auto& peer : peers_) {
    if (peer->state == Peer::State::kFree || peer->state == Peer::State::kBuried) continue;
    if (peer->state != Peer::State::kDown) {
      CheckTime(*peer, now_ns);
      Pump(*peer);
      peer->queue->Flush();
      done += peer->queue->Poll();
    }
    Sweep(*peer);
    if (peer->state == Peer::State::kDown) Bury(*peer);
  }
  return done;
}

}  // namespace sluice::bulk

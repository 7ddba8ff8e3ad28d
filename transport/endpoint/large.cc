// SPDX-License-Identifier: Apache-2.0
//
// Large messages: memory that is lent to peers, and memory of theirs that is fetched, in pieces (large.h).
#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

absl::Status NoPeer(const char* operation) {
  return base::Error(absl::StatusCode::kUnavailable, "peer is not connected",
                     {.layer = "endpoint",
                      .operation = operation,
                      .cause = "the peer disconnected, or is still connecting",
                      .remedy = "wait for OnPeerUp, or reconnect",
                      .retry_safe = true});
}

absl::Status OverLimit(const Peer& peer, const char* operation, uint64_t bytes, uint64_t limit) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     "large message of " + std::to_string(bytes) + " bytes is over the limit of " +
                         std::to_string(limit) + " bytes",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = operation,
                      .cause = "this side's max_large_bytes",
                      .remedy = "send less, or raise max_large_bytes",
                      .retry_safe = true});
}

// A caller that shows only `cause` to a user adds its own remedy.
absl::Status NotNow(const char* cause) {
  return base::Error(absl::StatusCode::kResourceExhausted, "no memory for a large message is free",
                     {.layer = "endpoint",
                      .operation = "lend",
                      .cause = cause,
                      .remedy = "wait for OnWritable, or raise large_memory_bytes",
                      .retry_safe = true});
}

absl::Status NoMemory(const Peer& peer, const absl::Status& why) {
  const std::string cause(why.message());
  return base::Error(absl::StatusCode::kAborted, "large message not sent",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = "lend",
                      .cause = cause,
                      .remedy = "send smaller messages, or lower large_memory_bytes",
                      .retry_safe = true});
}

absl::Status Stalled(const Peer& peer, int64_t stalled_ns) {
  return base::Error(
      absl::StatusCode::kUnavailable,
      "no part of a large message could be read from the peer for " +
          std::to_string(stalled_ns / 1'000'000) + " ms",
      {.layer = "endpoint",
       .peer = peer.address(),
       .operation = "fetch",
       .cause =
           "the peer's device completes READs neither with data nor with an error, or very slowly",
       .remedy = "check the peer's host and port; raise dead_peer_timeout if its reads may take "
                 "that long"});
}

absl::Status Refused(const Peer& peer) {
  return base::Error(absl::StatusCode::kPermissionDenied,
                     "the peer's device refused a READ of its memory",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = "fetch",
                      .cause = "the peer has revoked that memory, or never lent it",
                      .remedy = "request the message again"});
}

}  // namespace

void EndpointImpl::MakeLargeMemory() {
  lent_ = std::make_unique<LargeMemory>(
      api_, device_.pd(), commands_, options_.large_memory_bytes,
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
      LargeMemory::User{
          .ready =
              [this](uint32_t number, const absl::Status& status) {
                const uint64_t owner = lent_->owner(number);
                const PeerId id{static_cast<uint32_t>(owner), static_cast<uint32_t>(owner >> 32)};
                // For the handler, a peer that is leaving is down already.
                const Peer* const peer = Find(id);
                if (closed_ || peer == nullptr || peer->told_down) return;
                handler_->OnLent(id, number, status);
              },
          .room = [this] { large_work_ = !lend_waits_.empty() || large_work_; }});
  fetched_ = std::make_unique<LargeMemory>(
      api_, device_.pd(), commands_, options_.large_memory_bytes, IBV_ACCESS_LOCAL_WRITE,
      LargeMemory::User{.ready =
                            [this](uint32_t buffer, const absl::Status& status) {
                              for (uint32_t number : fetching_) {
                                FetchRecord& fetch = fetches_[number];
                                if (fetch.buffer != buffer) continue;
                                fetch.state = FetchRecord::State::kReading;
                                if (fetch.status.ok()) fetch.status = status;
                              }
                              large_work_ = true;
                            },
                        .room = [this] { large_work_ = !fetching_.empty() || large_work_; }});
  pieces_.resize(kLargeSlots);
}

// ---- Lending

absl::StatusOr<LargeBuffer> EndpointImpl::Lend(PeerId id, uint64_t bytes, bool waits) {
  const Peer* peer = Find(id);
  if (peer == nullptr || peer->state != peer::State::kUp) return NoPeer("lend");
  const uint64_t limit = lent_ == nullptr ? 0 : lent_->limit_bytes();
  if (held_lent_.changed()) CollectHeld();
  if (bytes > limit) return OverLimit(*peer, "lend", bytes, limit);
  if (waits && !(lend_turn_ == id) && SomebodyWaitsToLend()) {
    WaitToLend(id, /*of_share=*/false);
    large_work_ = true;  // the first waiting peer may no longer need memory
    return NotNow("other senders have waited longer");
  }
  const uint32_t number = lent_->Take(Owner(id), bytes, ReceptionOf(*peer).domain.get());
  if (number == LargeMemory::kFailed) return NoMemory(*peer, lent_->last_error());
  const bool of_share = number == LargeMemory::kOverShare;
  if (of_share || number == LargeMemory::kNone) {
    if (waits) WaitToLend(id, of_share);
    return NotNow(of_share ? "the peer has not read the large messages sent to it, which occupy "
                             "its share of the memory"
                           : "peers have not read the large messages sent to them");
  }
  return LargeBuffer{lent_->data(number), bytes, number};
}

bool EndpointImpl::SomebodyWaitsToLend() const {
  return std::any_of(lend_waits_.begin(), lend_waits_.end(),
                     [](const LendWait& wait) { return !wait.of_share; });
}

// Adds a peer to the waiting peers. In its own turn it goes to the front, unless it waits only for its own share.
void EndpointImpl::WaitToLend(PeerId id, bool of_share) {
  const auto before = std::find_if(lend_waits_.begin(), lend_waits_.end(),
                                   [id](const LendWait& wait) { return wait.peer == id; });
  if (before != lend_waits_.end()) {
    before->of_share = before->of_share && of_share;
  } else if (lend_turn_ == id && !of_share) {
    lend_waits_.push_front({id, of_share});
  } else {
    lend_waits_.push_back({id, of_share});
  }
}

std::optional<RemoteMemory> EndpointImpl::WhereLent(uint32_t number) {
  if (!lent_->ready(number)) return std::nullopt;
  return RemoteMemory{.address = reinterpret_cast<uint64_t>(lent_->data(number)),
                      .bytes = 0,
                      .key = lent_->rkey(number)};
}

void EndpointImpl::EndLoan(uint32_t number) {
  if (!held_lent_.EndLoan(number)) FreeLent(number);
}

void EndpointImpl::FreeLent(uint32_t number) {
  const uint64_t owner = lent_->owner(number);
  const PeerId id{static_cast<uint32_t>(owner), static_cast<uint32_t>(owner >> 32)};
  const Peer* peer = Find(id);
  // A peer in state kLeaving may still read the memory. The key stays valid until the goodbye has been acknowledged (EndLarge()), so
  // the peer reads the message or receives the goodbye first.
  const bool reads =
      peer != nullptr && (peer->state == peer::State::kUp || peer->state == peer::State::kLeaving);
  if (!reads) return lent_->Discard(number);
  lent_->Give(number);
}

void EndpointImpl::TellLend() {
  for (size_t turns = lend_waits_.size(); turns > 0; --turns) {
    const PeerId id = lend_waits_.front().peer;
    lend_waits_.pop_front();
    const Peer* peer = Find(id);
    if (peer == nullptr || peer->state != peer::State::kUp || closed_) continue;
    lend_turn_ = id;
    handler_->OnWritable(id);
    lend_turn_ = {};
    const bool in_vain =
        !lend_waits_.empty() && lend_waits_.front().peer == id && !lend_waits_.front().of_share;
    if (in_vain) return;  // the peers behind it wait for its turn
  }
}

// ---- Held

HeldMemory EndpointImpl::HoldLent(uint32_t number) {
  return held_lent_.Hold(lent_->data(number), lent_->size_bytes(number), number,
                         lent_->owner(number), /*lent=*/true);
}

bool EndpointImpl::LendHeld(PeerId id, const HeldMemory& memory) {
  const Peer* peer = Find(id);
  return peer != nullptr && peer->state == peer::State::kUp && memory.owner() == Owner(id) &&
         held_lent_.Owns(memory) && lent_->lendable(memory.number()) && held_lent_.Lend(memory);
}

// At least half of the memory, and room for the largest message, is left for messages that are not held. Otherwise a user that holds
// a message and waits for the next message could wait without limit.
HeldMemory EndpointImpl::HoldFetched(uint32_t number) {
  const FetchRecord& fetch = fetches_[number];
  const uint64_t bytes = fetched_->size_bytes(fetch.buffer);
  const uint64_t limit = fetched_->limit_bytes();
  const uint64_t most = std::min(limit / 2, limit - fetched_->SizeFor(options_.max_large_bytes));
  if (held_fetched_.bytes() + bytes > most) return {};
  HeldMemory held = held_fetched_.Hold(fetched_->data(fetch.buffer), bytes, number,
                                       Owner(fetch.peer), /*lent=*/false);
  Discharge(&fetches_[number]);
  return held;
}

void EndpointImpl::CollectHeld() {
  held_lent_.Collect([this](uint32_t number) { FreeLent(number); });
  held_fetched_.Collect([this](uint32_t number) { GiveBack(number); });
}

// A release of held memory wakes the thread only if a sender or a fetch waits for memory.
bool EndpointImpl::PrepareHeldToSleep() {
  return (lend_waits_.empty() || held_lent_.PrepareToSleep()) &&
         (fetching_.empty() || held_fetched_.PrepareToSleep());
}

// ---- Fetching

absl::StatusOr<uint32_t> EndpointImpl::Fetch(PeerId id, const RemoteMemory& from) {
  Peer* peer = Find(id);
  if (peer == nullptr || peer->state != peer::State::kUp) return NoPeer("fetch");
  if (from.bytes > options_.max_large_bytes || from.bytes == 0) {
    return OverLimit(*peer, "fetch", from.bytes, options_.max_large_bytes);
  }
  LargeOf(*peer);
  uint32_t number = static_cast<uint32_t>(fetches_.size());
  if (free_fetches_.empty()) {
    fetches_.emplace_back();
  } else {
    number = free_fetches_.back();
    free_fetches_.pop_back();
  }
  fetches_[number] = FetchRecord();
  fetches_[number].state = FetchRecord::State::kWaiting;
  fetches_[number].peer = id;
  fetches_[number].from = from;
  fetching_.push_back(number);
  ++counters_.fetches;
  large_work_ = true;
  return number;
}

void EndpointImpl::CancelFetch(uint32_t number) {
  FetchRecord& fetch = fetches_[number];
  if (!fetch.status.ok() || fetch.state == FetchRecord::State::kFetched) return;
  fetch.status = absl::CancelledError("the receiver no longer waits for it");
  large_work_ = true;
}

void EndpointImpl::GiveBack(uint32_t number) {
  Discharge(&fetches_[number]);
  fetched_->Give(fetches_[number].buffer);
  fetches_[number] = FetchRecord();
  free_fetches_.push_back(number);
}

PeerLarge& EndpointImpl::LargeOf(const Peer& peer) {
  auto& large = large_of_[peer.index()];
  if (large == nullptr) {
    large = std::make_unique<PeerLarge>();
    queue::Target& target = large->target;
    target.ah = peer.target.ah;
    target.key[0] = peer.target.key[0];
    target.dctn[0] = peer.target.dctn[0];
    target.name = peer.target.name;
    target.cookie = peer.index() | kForLarge;
    // READs need no order. But a target that leaves its stream marks the DCI as late, so this target never leaves.
    target.unacknowledged = UINT32_MAX;
    if (rc_ != nullptr) rc_->Share(&target, peer.target);
    queue_->Open(&target);
    large->at_once = std::clamp<uint32_t>(peer.reads, 1, kPiecesOfPeer);
  }
  return *large;
}

// Ends the loans and fetches of a peer without callbacks. Memory of a fetch is freed when no READ into it is in flight.
void EndpointImpl::EndLarge(Peer* peer) {
  if (lent_ == nullptr) return;
  lent_->Forget(Owner(peer->id()));
  held_lent_.ForEachOf(Owner(peer->id()), [this](uint32_t number) { lent_->Revoke(number); });
  std::erase_if(lend_waits_, [peer](const LendWait& wait) { return wait.peer == peer->id(); });
  for (uint32_t number : fetching_) {
    FetchRecord& fetch = fetches_[number];
    if (!(fetch.peer == peer->id())) continue;
    fetch.orphan = true;
    if (fetch.status.ok()) fetch.status = absl::CancelledError("the peer is down");
    large_work_ = true;
  }
  const auto found = large_of_.find(peer->index());
  if (found == large_of_.end()) return;
  queue_->Close(&found->second->target);
  // Memory that the user has no longer counts to this peer's share: another peer may use the record by then.
  for (FetchRecord& fetch : fetches_) {
    if (fetch.state == FetchRecord::State::kFetched && fetch.peer == peer->id()) {
      fetch.orphan = true;
    }
  }
}

// Returns false if requests are still in flight.
bool EndpointImpl::ForgetLarge(const Peer& peer) {
  const auto found = large_of_.find(peer.index());
  if (found == large_of_.end()) return true;
  if (found->second->target.posted != 0) return false;
  large_of_.erase(found);
  return true;
}

void EndpointImpl::OnPiece(queue::Target* target, uint32_t slot, bool ok) {
  const Piece piece = pieces_[slot - slots_->first_bulk()];
  FetchRecord& fetch = fetches_[piece.fetch];
  --fetch.under_way;
  PeerLarge& large = *large_of_[target->cookie & ~kForLarge];
  --large.under_way;
  large_work_ = true;
  if (ok) {
    large.moved = true;
    fetch.done += (*slots_)[slot].length_bytes;
    counters_.fetched_bytes += (*slots_)[slot].length_bytes;
  } else if (!(*slots_)[slot].refused) {
    fetch.again.push_back(piece.offset);
  } else if (fetch.status.ok()) {
    fetch.status = Refused(PeerOf(*target));
  }
}

void EndpointImpl::ResumeLarge(queue::Target* target) {
  queue_->Resume(target);
  large_work_ = true;
}

// A fetched message counts until it is consumed. Messages are consumed in order, so it may have to wait for an earlier message.
// Memory that the user holds has its own limit, and counts for no peer: a user that holds a message and waits for the next message
// must not wait without limit.
bool EndpointImpl::IsOverFetchShare(const FetchRecord& fetch) {
  const uint64_t own = LargeOf(peers_[fetch.peer.index]).fetch_bytes;
  if (own == 0) return false;
  const uint64_t rest = fetched_->limit_bytes() - (fetch_bytes_ - own);
  return own + fetched_->SizeFor(fetch.from.bytes) > rest / kFetchShareOfRest;
}

// Ends the charge of a fetch to its peer: the message was consumed, is held, or is dropped.
void EndpointImpl::Discharge(FetchRecord* fetch) {
  if (fetch->charged == 0) return;
  large_work_ = large_work_ || !fetching_.empty();  // for fetches that wait for the peer's share
  fetch_bytes_ -= fetch->charged;
  // The record of a peer that has ended may belong to another peer already.
  const auto large = large_of_.find(fetch->peer.index);
  if (!fetch->orphan && large != large_of_.end()) large->second->fetch_bytes -= fetch->charged;
  fetch->charged = 0;
}

// Returns false if no memory is free now.
bool EndpointImpl::BeginFetch(uint32_t number) {
  FetchRecord& fetch = fetches_[number];
  fetch.buffer = fetched_->Take(LargeMemory::kEverybody, fetch.from.bytes);
  if (fetch.buffer == LargeMemory::kNone) return false;
  if (fetch.buffer == LargeMemory::kFailed) {
    fetch.buffer = LargeMemory::kNone;
    fetch.status = fetched_->last_error();
    return true;
  }
  fetch.charged = fetched_->size_bytes(fetch.buffer);
  fetch_bytes_ += fetch.charged;
  LargeOf(peers_[fetch.peer.index]).fetch_bytes += fetch.charged;
  fetch.state =
      fetched_->ready(fetch.buffer) ? FetchRecord::State::kReading : FetchRecord::State::kMaking;
  return true;
}

void EndpointImpl::PostPieces(uint32_t number) {
  FetchRecord& fetch = fetches_[number];
  PeerLarge& large = LargeOf(peers_[fetch.peer.index]);
  const auto may_post = [&] {
    return large.under_way < large.at_once && !large.target.broken && !large.target.closed;
  };
  while (may_post() && (!fetch.again.empty() || fetch.posted < fetch.from.bytes)) {
    const uint32_t slot = slots_->TakeBulk();
    if (slot == queue::kNoSlot) return;
    if (large.under_way == 0 && fetch.again.empty()) large.moved = true;  // time counts from here
    uint64_t offset = fetch.posted;
    if (fetch.again.empty()) {
      fetch.posted = std::min(fetch.posted + kPieceBytes, fetch.from.bytes);
    } else {
      offset = fetch.again.back();
      fetch.again.pop_back();
    }
    queue::Slot& piece = (*slots_)[slot];
    const auto bytes =
        static_cast<uint32_t>(std::min<uint64_t>(kPieceBytes, fetch.from.bytes - offset));
    piece.data = fetched_->data(fetch.buffer) + offset;
    piece.lkey = fetched_->lkey(fetch.buffer);
    piece.length_bytes = bytes;
    piece.operation = queue::Operation::kRead;
    piece.write = {
        .address = fetch.from.address + offset, .rkey = fetch.from.key, .length_bytes = bytes};
    piece.notify = piece.signal = true;
    pieces_[slot - slots_->first_bulk()] = {.fetch = number, .offset = offset};
    ++fetch.under_way;
    ++large.under_way;
    queue_->Post(&large.target, slot);
  }
}

void EndpointImpl::OnLargeTime(base::Timer*, void* context) {
  auto* self = static_cast<EndpointImpl*>(context);
  self->large_work_ = self->fetch_look_ = true;
}

// Ends peers whose fetches have stalled. Completions were taken before. This thread may have been stopped, so one check alone proves
// nothing. A peer whose READs wait for other requests, or for a recovery, is skipped.
void EndpointImpl::LookAtFetches() {
  for (const auto& [index, large] : large_of_) {
    if (std::exchange(large->moved, false)) {
      large->stalls = 0;
      continue;
    }
    if (large->target.closed || large->under_way == 0) continue;
    if (!queue_->IsInFront(large->target) || ++large->stalls < kMostStalls) continue;
    const absl::Status why =
        Stalled(peers_[index], static_cast<int64_t>(kMostStalls) * options_.dead_peer_ns);
    log_.Say(base::Severity::kWarning, "fetch stalled", peers_[index].address(),
             std::string(why.message()));
    Fail(&peers_[index], why);
  }
}

// Gives each fetch one turn. Then reports the fetches that have ended, because a callback may start further fetches.
int EndpointImpl::MoveLarge() {
  large_work_ = false;
  if (std::exchange(fetch_look_, false)) LookAtFetches();
  if (!lend_waits_.empty()) TellLend();
  std::vector<uint32_t> ended;
  std::vector<PeerId> over_share;
  bool room = true;
  for (size_t turns = fetching_.size(); turns > 0; --turns) {
    const uint32_t number = fetching_.front();
    fetching_.pop_front();
    FetchRecord& fetch = fetches_[number];
    // Fetches get memory in their order. No fetch waits for the share of another peer.
    if (fetch.status.ok() && fetch.state == FetchRecord::State::kWaiting && room &&
        std::find(over_share.begin(), over_share.end(), fetch.peer) == over_share.end()) {
      if (IsOverFetchShare(fetch)) {
        over_share.push_back(fetch.peer);
      } else {
        room = BeginFetch(number);
      }
    }
    if (fetch.status.ok() && fetch.state == FetchRecord::State::kReading) PostPieces(number);
    const bool over = !fetch.status.ok() || fetch.done == fetch.from.bytes;
    if (over && fetch.under_way == 0 && fetch.state != FetchRecord::State::kMaking) {
      ended.push_back(number);
    } else {
      fetching_.push_back(number);
    }
  }
  // A peer revokes its memory when it disconnects. Its goodbye may be among the messages that have arrived: they are taken first, so
  // that the fetch ends with its peer.
  const bool refused = std::any_of(ended.begin(), ended.end(), [this](uint32_t number) {
    return absl::IsPermissionDenied(fetches_[number].status);
  });
  if (refused) ReceiveAll();
  for (uint32_t number : ended) {
    FetchRecord& fetch = fetches_[number];
    const Peer* const peer = Find(fetch.peer);
    const bool can_deliver = !fetch.orphan && !closed_ && peer != nullptr && !peer->told_down;
    if (fetch.status.ok() && can_deliver) {
      fetch.state = FetchRecord::State::kFetched;
      handler_->OnFetched(
          fetch.peer, LargeBuffer{fetched_->data(fetch.buffer), fetch.from.bytes, number}, number);
      continue;
    }
    Discharge(&fetch);
    const FetchRecord gone = std::exchange(fetch, FetchRecord());
    free_fetches_.push_back(number);
    if (gone.buffer != LargeMemory::kNone) fetched_->Give(gone.buffer);
    if (gone.orphan) continue;
    if (!gone.status.ok()) ++counters_.fetches_failed;
    if (can_deliver) handler_->OnFetched(gone.peer, gone.status, number);
  }
  if (!fetching_.empty() && !large_timer_.armed()) {
    timers_.Schedule(&large_timer_, clock_.NowNs() + options_.dead_peer_ns);
  }
  return static_cast<int>(ended.size());
}

}  // namespace sluice::endpoint

// SPDX-License-Identifier: Apache-2.0
#include "transport/onesided/mover.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/queue/completion_error.h"
#include "transport/queue/dci_pool.h"

namespace sluice::onesided {
namespace {

constexpr uint32_t kSendDepth = 256;
constexpr uint32_t kBufferBytes = kHeadBytes + kMaxWordBytes;
// Buffers for messages that are not words. A grant is sent for each half of a window: at most two unread grants, and one more that
// arrived although its request failed. Further: a goodbye, and the buffer that is being read.
constexpr uint32_t kBuffersBesideWords = 5;
constexpr uint32_t kControlSlots = 64;
// Maximum number of useless messages of a peer in a row, besides copies of words and grants.
constexpr uint32_t kMostUseless = 64;

absl::Status Down(absl::StatusCode code, std::string_view what, std::string_view cause,
                  std::string_view remedy = "join the two sides again") {
  return base::Error(code, what,
                     {.layer = "onesided",
                      .operation = "move",
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = false});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mover>> Mover::Create(device::Device& device,
                                                     poller::Commands& commands,
                                                     base::Random& random, MoverUser& user,
                                                     const MoverOptions& options) {
  std::unique_ptr<Mover> mover(new Mover(device, commands, random, user, options));
  absl::Status status = mover->Init();
  if (!status.ok()) return status;
  return mover;
}

Mover::Mover(device::Device& device, poller::Commands& commands, base::Random& random,
             MoverUser& user, const MoverOptions& options)
    : device_(device),
      commands_(commands),
      random_(random),
      user_(user),
      options_(options),
      ways_(options.max_peers) {
  for (uint32_t place = 0; place < ways_.size(); ++place) ways_[place].target.cookie = place;
}

absl::Status Mover::Init() {
  const verbs::VerbsApi& api = device_.api();
  path_ = device_.path();
  const int error_number = api.query_gid(device_.context(), path_.port, path_.sgid_index, &gid_);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_query_gid",
                            {.layer = "onesided", .operation = "create"});
  }
  auto receive = ReceiveQueues::Create(device_, commands_,
                                       {.peers = options_.max_peers,
                                        .depth = options_.window + kBuffersBesideWords,
                                        .buffer_bytes = kBufferBytes,
                                        .dct = !device_.rc(),
                                        .channel = options_.channel});
  if (!receive.ok()) return receive.status();
  receive_ = *std::move(receive);

  // Enough slots that the queue never holds back pieces because slots for words are scarce.
  const uint32_t words = std::max(options_.max_peers * options_.window, 3 * kSendDepth);
  auto slab =
      memory::Slab::Create(api, device_.pd(), size_t{words + kControlSlots} * kBufferBytes, 0);
  if (!slab.ok()) return slab.status();
  memory_ = *std::move(slab);
  slots_.emplace(memory_.data(), words, kBufferBytes, memory_.data() + size_t{words} * kBufferBytes,
                 kControlSlots, kBufferBytes, kMaxPieces);
  cookies_.resize(kMaxPieces);
  arrived_.resize(words);
  return MakeSendQueues();
}

// The CQ of RC queue pairs holds a completion for each slot.
absl::Status Mover::MakeSendQueues() {
  const uint32_t depth = device_.rc() ? slots_->size() : (options_.dci_count + 1) * kSendDepth;
  auto send_cq = verbs::CreateCq(device_.api(), device_.context(), depth, options_.channel);
  if (!send_cq.ok()) return send_cq.status();
  send_cq_ = *std::move(send_cq);
  if (device_.rc()) {
    queue::QueueUser& user = *this;
    auto queues = std::make_unique<queue::RcQueues>(
        device_, send_cq_.get(), *slots_, memory_.lkey(),
        queue::RcOptions{.dead_peer_ns = options_.dead_peer_ns}, commands_, user);
    rc_ = queues.get();
    queue_ = std::move(queues);
    return absl::OkStatus();
  }
  auto queue = queue::DciPool::Create(device_, send_cq_.get(), *slots_, memory_.lkey(),
                                      {.dci_count = options_.dci_count,
                                       .send_depth = kSendDepth,
                                       .dead_peer_ns = options_.dead_peer_ns,
                                       .use_streams = options_.use_streams},
                                      commands_, *this);
  if (!queue.ok()) return queue.status();
  queue_ = *std::move(queue);
  return absl::OkStatus();
}

Mover::~Mover() = default;

absl::StatusOr<std::shared_ptr<memory::Domain>> Mover::MakeDomain() {
  if (rc_ != nullptr) return NoDomain();
  auto domain = verbs::AllocPd(device_.api(), device_.context());
  if (!domain.ok()) return domain.status();
  return std::make_shared<memory::Domain>(*std::move(domain));
}

absl::StatusOr<Address> Mover::Open(uint32_t place, std::shared_ptr<memory::Domain> domain) {
  Way& way = ways_[place];
  assert(way.state == State::kFree);
  const uint64_t access_key = random_.Next64();
  const auto receive_queue = receive_->Make(place, std::move(domain), access_key, path_);
  if (!receive_queue.ok()) return receive_queue.status();
  way.receive_queue = *receive_queue;
  if (rc_ != nullptr) {
    absl::Status status = OpenQueue(way);
    if (!status.ok()) {
      receive_->Destroy(std::exchange(way.receive_queue, ReceiveQueues::kNone));
      return status;
    }
  }
  way.state = State::kOpen;
  do way.token = random_.Next64();
  while (way.token == 0);
  way.peer = {};
  way.receive.Start(options_.window);
  way.next_to_send = way.next_expected = way.useless = 0;
  way.ready = false;
  Address address{
      .dctn = rc_ != nullptr ? rc_->number(way.target) : receive_->dctn(way.receive_queue),
      .access_key = access_key,
      .place = place,
      .token = way.token,
      .window = options_.window,
      .rc = rc_ != nullptr,
      .reads = rc_ != nullptr ? path_.max_rd_atomic : uint8_t{0}};
  std::memcpy(address.gid.data(), gid_.raw, address.gid.size());
  address.lid = device_.lid();
  return address;
}

absl::Status Mover::Connect(uint32_t place, const Address& peer, bool last) {
  Way& way = ways_[place];
  assert(way.state == State::kOpen);
  if (!dead_.ok()) return dead_;
  if (peer.rc != (rc_ != nullptr)) return UnlikeTransports();
  // Such a peer would send grants for half of its window, but this side never has that many words in flight.
  if (peer.window / 2 + peer.window % 2 > options_.window) {
    return Down(absl::StatusCode::kInvalidArgument, "the peer takes more words than are kept here",
                "its window is more than twice that of this side",
                "run the same release of Sluice on both sides");
  }
  absl::Status status = rc_ != nullptr ? ConnectQueue(way, peer) : AcquireHandle(way, peer);
  if (!status.ok()) return status;
  way.peer = peer;
  way.send.Start(peer.window);
  way.state = State::kUp;
  way.ready = rc_ == nullptr || last;
  if (rc_ != nullptr && last) {  // the peer waits for a first message
    way.grant_due = true;
    ++grants_due_;
  }
  return absl::OkStatus();
}

absl::Status Mover::AcquireHandle(Way& way, const Address& peer) {
  ibv_ah_attr attr = verbs::AddressVector(path_);
  std::memcpy(attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  attr.dlid = peer.lid;
  errno = 0;
  way.handle = {&device_.api(), device_.api().create_ah(device_.pd(), &attr)};
  if (!way.handle) {
    return base::ErrnoError(errno != 0 ? errno : EINVAL, "ibv_create_ah",
                            {.layer = "onesided",
                             .operation = "connect",
                             .cause = "the peer's address can't be reached from this port",
                             .remedy = "check the route and the neighbour entry to the peer"});
  }
  way.target.ah = way.handle.get();
  way.target.dctn[0] = way.target.dctn[1] = peer.dctn;
  way.target.key[0] = way.target.key[1] = peer.access_key;
  // The target never counts as acknowledged, so it does not leave a DCI whose completions are late: requests that it left behind there
  // would still be in flight.
  way.target.unacknowledged = UINT32_MAX;
  queue_->Open(&way.target);
  return absl::OkStatus();
}

void Mover::Close(uint32_t place, const absl::Status& why, bool goodbye) {
  Way& way = ways_[place];
  if (way.state == State::kFree || way.state == State::kEnding) return;
  way.parting = goodbye && way.state == State::kUp && way.ready && !way.target.broken;
  // `parting` is set before, because the goodbye may end within the call.
  if (way.parting && !PostControl(way, WordKind::kGoodbye)) way.parting = false;
  End(way, why);
}

void Mover::CutOff(uint32_t place) {
  Way& way = ways_[place];
  if (HasQueue(way)) {
    way.parting = false;
    return queue_->Close(&way.target);
  }
  if (way.receive_queue == ReceiveQueues::kNone) return;
  receive_->Destroy(std::exchange(way.receive_queue, ReceiveQueues::kNone));
}

// Posted requests end by themselves. TellEnds() waits for them.
void Mover::End(Way& way, const absl::Status& why) {
  if ((way.state == State::kUp || HasQueue(way)) && !way.parting) queue_->Close(&way.target);
  way.state = State::kEnding;
  way.why = why;
  if (std::exchange(way.grant_due, false)) --grants_due_;
  ending_.push_back(PlaceOf(way));
}

bool Mover::CanMove(uint32_t place) const {
  const Way& way = ways_[place];
  return IsOpen(way) && !way.target.broken && way.pieces < options_.max_pieces &&
         slots_->free_bulk() != 0;
}

void Mover::Move(uint32_t place, const Piece& piece) {
  assert(CanMove(place));
  Way& way = ways_[place];
  const uint32_t index = slots_->TakeBulk();
  queue::Slot& slot = (*slots_)[index];
  slot.data = piece.memory;
  slot.lkey = piece.lkey;
  slot.length_bytes = piece.bytes;
  slot.operation = piece.read ? queue::Operation::kRead : queue::Operation::kWrite;
  slot.write = {.address = piece.remote_address, .rkey = piece.rkey, .length_bytes = piece.bytes};
  slot.notify = slot.signal = true;
  cookies_[index - slots_->first_bulk()] = piece.cookie;
  ++way.pieces;
  ++counters_.pieces;
  queue_->Post(&way.target, index);
}

bool Mover::CanSay(uint32_t place) const {
  const Way& way = ways_[place];
  return IsOpen(way) && way.send.available() != 0 && way.kept.size() < options_.window &&
         slots_->free_data() != 0;
}

void Mover::Say(uint32_t place, std::span<const std::byte> word) {
  assert(CanSay(place) && word.size() <= kMaxWordBytes);
  Way& way = ways_[place];
  const uint32_t index = slots_->Take(/*control=*/false);
  queue::Slot& slot = (*slots_)[index];
  const Head head{.kind = WordKind::kWord,
                  .place = way.peer.place,
                  .token = way.peer.token,
                  .sequence = way.next_to_send++,
                  .granted = way.receive.Report(options_.window)};
  Store(head, slot.data);
  std::memcpy(slot.data + kHeadBytes, word.data(), word.size());
  slot.length_bytes = static_cast<uint32_t>(kHeadBytes + word.size());
  way.send.Use();
  way.kept.push_back(index);
  arrived_[index] = false;
  ++counters_.words_sent;
  PostWord(way, index);
}

// If the word is retransmitted, it carries the grant of its first transmission. An old grant is harmless.
void Mover::PostWord(Way& way, uint32_t slot) {
  (*slots_)[slot].notify = (*slots_)[slot].signal = true;
  queue_->Post(&way.target, slot);
}

bool Mover::PostControl(Way& way, WordKind kind) {
  const uint32_t index = slots_->Take(/*control=*/true);
  if (index == queue::kNoSlot) return false;
  queue::Slot& slot = (*slots_)[index];
  Store({.kind = kind,
         .place = way.peer.place,
         .token = way.peer.token,
         .granted = way.receive.Report(options_.window)},
        slot.data);
  slot.length_bytes = kHeadBytes;
  slot.notify = slot.signal = true;
  queue_->Post(&way.target, index);
  return true;
}

int Mover::Poll() {
  int count = Receive();
  // Receive() has taken all messages of the queue pairs that a command has stopped before.
  if (rc_ != nullptr && rc_->stopping()) rc_->DestroyStopped();
  if (!stopped_.empty()) EndStopped();
  count += queue_->Poll(std::exchange(thorough_, false));
  for (Stopped& stopped : stopped_) {
    stopped.due = true;
    ++count;
  }
  if (grants_due_ != 0) SayGrants();
  queue_->Flush();
  if (!ending_.empty()) TellEnds();
  return count;
}

void Mover::Arm() {
  queue_->Flush();
  ibv_req_notify_cq(receive_->cq(), 0);
  ibv_req_notify_cq(send_cq_.get(), 0);  // also for requests that the last Poll() posts
  thorough_ = true;
}

// Processes all available completions before a grant is written, so that words sent under earlier grants can be counted
// (docs/decisions/0046).
int Mover::Receive() {
  const std::span<const ibv_wc> arrivals = receive_->Look();
  if (receive_->unreadable()) [[unlikely]]
    Break(queue::PollError("onesided", "receive"));
  if (!arrivals.empty() && ++look_ == 0) {
    for (Way& way : ways_) way.receive.ForgetLook();
    look_ = 1;
  }
  for (const ibv_wc& arrival : arrivals) {
    const auto place = receive_->PlaceOf(arrival);
    // Buffers of an ended peer are not posted again, so the peer can send no more messages than it has buffers.
    if (!place || (ways_[*place].state != State::kOpen && ways_[*place].state != State::kUp))
      continue;
    // A WRITE with immediate data also takes a buffer, but does not change it: the buffer may contain an earlier word.
    if (arrival.status == IBV_WC_SUCCESS && arrival.opcode == IBV_WC_RECV) {
      OnReceived(ways_[*place], receive_->BytesOf(arrival));
    } else if (rc_ != nullptr && arrival.status != IBV_WC_SUCCESS) {
      NoteStopped(*place, QueueStopped());
    } else {
      ++counters_.strangers;
      OnUseless(ways_[*place]);
    }
    receive_->Recycle(arrival);
  }
  receive_->FreeEnded();
  return static_cast<int>(arrivals.size());
}

void Mover::OnReceived(Way& way, std::span<const std::byte> bytes) {
  const auto head = LoadHead(bytes);
  if (!head || head->place != PlaceOf(way) || head->token != way.token) {
    ++counters_.strangers;
    return OnUseless(way);
  }
  way.ready |= way.state == State::kUp;
  const bool granted = TakeGrant(way, head->granted);
  switch (head->kind) {
    case WordKind::kWord:
      return TakeWord(way, head->sequence, bytes.subspan(kHeadBytes));
    case WordKind::kGrant:
      if (granted) way.useless = 0;
      if (!granted) OnUseless(way);
      return;
    case WordKind::kGoodbye:
      return End(way, Down(absl::StatusCode::kUnavailable, "the peer has left",
                           "it was told to, or gave this side up for another"));
  }
}

// Counts copies of words, grants without news, and invalid messages. A correct peer sends some of them after each of its errors. The
// number of its errors is not known here, but a useful word or grant follows soon.
void Mover::OnUseless(Way& way) {
  if (way.state != State::kOpen && way.state != State::kUp) return;
  const uint32_t most =
      kMostUseless + (options_.window + way.peer.window) * peer::ReceiveCredits::kMaxCopies;
  if (++way.useless <= most) return;
  EndOffender(way, "more than " + std::to_string(most) +
                       " messages came one after the other that were of no use");
}

bool Mover::TakeGrant(Way& way, uint32_t granted) {
  if (way.state != State::kUp) return false;
  const uint32_t window = way.peer.window;
  const uint32_t before = way.send.acknowledged(window);
  if (!way.send.Grant(granted, window)) return false;
  for (uint32_t taken = way.send.acknowledged(window) - before; taken > 0; --taken) {
    queue_->Release(way.kept.front());
    way.kept.pop_front();
  }
  queue_->Acknowledged(&way.target);
  return true;
}

void Mover::TakeWord(Way& way, uint32_t sequence, std::span<const std::byte> word) {
  const auto ahead = static_cast<int32_t>(sequence - way.next_expected);
  if (ahead > 0) {
    CutOff(PlaceOf(way));
    return End(way, Down(absl::StatusCode::kUnavailable, "the peer left out a word",
                         "one of the two sides breaks the protocol",
                         "run the same release of Sluice on both sides"));
  }
  way.receive.DataArrived(look_, options_.window);
  if (ahead < 0) {
    ++counters_.words_twice;
    OnUseless(way);
    if (way.state != State::kOpen && way.state != State::kUp) return;
  } else {
    way.useless = 0;
    ++way.next_expected;
    ++counters_.words_taken;
    way.receive.Consumed();
    if (way.receive.overdrawn()) {
      return EndOffender(way, "it has said " + std::to_string(way.receive.consumed()) +
                                  " words, and was granted " + std::to_string(way.receive.limit()));
    }
  }
  if (way.receive.ReportIsDue() && !std::exchange(way.grant_due, true)) ++grants_due_;
  if (ahead == 0) user_.OnWord(PlaceOf(way), word);
}

void Mover::EndOffender(Way& way, const std::string& cause) {
  ++counters_.over_credit;
  CutOff(PlaceOf(way));
  End(way, Down(absl::StatusCode::kUnavailable, "the peer sent more than it was granted", cause,
                "run the same release of Sluice on both sides"));
}

void Mover::SayGrants() {
  for (Way& way : ways_) {
    if (!way.grant_due || way.state != State::kUp || way.target.broken) continue;
    if (slots_->free_control() == 0) return;
    way.grant_due = false;  // OnSaid() sets it again if the grant is lost
    --grants_due_;
    PostControl(way, WordKind::kGrant);
  }
}

void Mover::OnSent(queue::Target* target, uint32_t slot, bool ok) {
  Way& way = WayOf(*target);
  if (!(*slots_)[slot].bulk) return OnSaid(way, slot, ok);
  --way.pieces;
  PieceEnd end = PieceEnd::kMoved;
  if (!ok && (*slots_)[slot].refused) {
    end = PieceEnd::kRefused;
    ++counters_.pieces_refused;
  } else if (!ok) {
    end = PieceEnd::kFailed;
    ++counters_.pieces_failed;
  }
  user_.OnPiece(PlaceOf(way), cookies_[slot - slots_->first_bulk()], end);
}

// Records the end of a word or control message. A word that has arrived is never retransmitted, even if the peer has not read it
// yet: each copy would take a buffer.
void Mover::OnSaid(Way& way, uint32_t slot, bool ok) {
  if (!(*slots_)[slot].control) {
    arrived_[slot] = arrived_[slot] || ok;
    return;
  }
  const auto head = LoadHead({(*slots_)[slot].data, kHeadBytes});
  if (head->kind == WordKind::kGoodbye) {
    way.parting = false;
  } else if (!ok && way.state == State::kUp && !std::exchange(way.grant_due, true)) {
    ++grants_due_;
  }
}

// Retransmits words that may be lost. After the loss of a grant, OnSaid() makes a new grant due.
void Mover::OnTargetReset(queue::Target* target, const absl::Status&) {
  Way& way = WayOf(*target);
  if (way.state != State::kUp) return;  // TellEnds() closes it
  queue_->Resume(target);
  for (const uint32_t slot : way.kept) {
    if (arrived_[slot]) continue;
    ++counters_.words_again;
    PostWord(way, slot);
  }
}

void Mover::OnTargetFailed(queue::Target* target, const absl::Status& why) {
  Way& way = WayOf(*target);
  way.parting = false;
  if (way.state != State::kUp) return;
  const absl::Status down =
      Down(absl::StatusCode::kUnavailable, "the peer does not answer", std::string(why.message()));
  if (rc_ == nullptr) return End(way, down);
  NoteStopped(PlaceOf(way), down);
}

void Mover::OnQueueDead(const absl::Status& why) {
  if (dead_.ok()) dead_ = why;
  for (Way& way : ways_) {
    way.parting = false;
    if (way.state == State::kUp || way.state == State::kOpen) End(way, why);
  }
}

void Mover::TellEnds() {
  std::vector<uint32_t> left;
  std::vector<uint32_t> now = std::exchange(ending_, {});
  for (const uint32_t place : now) {
    Way& way = ways_[place];
    if ((way.handle || HasQueue(way)) && !way.parting) queue_->Close(&way.target);
    if (way.parting || way.target.posted != 0 || way.pieces != 0 ||
        (HasQueue(way) && rc_->IsEnding(way.target))) {
      left.push_back(place);
      continue;
    }
    for (const uint32_t slot : way.kept) queue_->Release(slot);
    way.kept.clear();
    way.target.ah = nullptr;
    if (way.handle)
      commands_.Submit([handle = std::move(way.handle)]() mutable { handle.reset(); }, [] {});
    if (HasQueue(way)) {
      way.target.stream = queue::kNoStream;
      receive_->Destroy(std::exchange(way.receive_queue, ReceiveQueues::kNone));
    } else if (way.receive_queue != ReceiveQueues::kNone) {
      receive_->Retire(std::exchange(way.receive_queue, ReceiveQueues::kNone));
    }
    way.state = State::kFree;
    way.token = 0;
    user_.OnDown(place, std::exchange(way.why, absl::OkStatus()));
  }
  ending_.insert(ending_.end(), left.begin(), left.end());
}

}  // namespace sluice::onesided

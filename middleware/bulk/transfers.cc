// SPDX-License-Identifier: Apache-2.0
//
// Transfers of this side: from Start(), piece by piece, to OnTransferred().
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/port.h"
#include "middleware/bulk/refusal.h"

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

TransferId TransferOf(uint64_t cookie) { return cookie >> kPieceBits; }
uint32_t PieceOf(uint64_t cookie) { return cookie & (kMaxPieces - 1); }

absl::Status HoldsNoMore(std::string_view remedy) {
  return Refused(absl::StatusCode::kPermissionDenied, "the capability is no longer valid",
                 "its lender returned the lease, or the lease expired", remedy);
}

}  // namespace

absl::Status Port::CheckRequest(const Peer& peer, const TransferRequest& request) const {
  absl::Status status = Validate(request.protection, request.data_bytes);
  if (!status.ok()) return status;
  const Capability& remote = request.remote;
  if (remote.port != peer.number) {
    return Refused(absl::StatusCode::kPermissionDenied, "the capability is of another peer",
                   "another port issued the capability",
                   "use it with the peer that lent the memory");
  }
  const uint8_t right = request.kind == Kind::kWrite ? kMayWrite : kMayRead;
  if ((remote.rights & right) == 0) {
    return Refused(absl::StatusCode::kPermissionDenied,
                   right == kMayWrite ? "the capability is not for writing"
                                      : "the capability is not for reading",
                   "its lender did not grant this right", "ask for another lease");
  }
  const uint64_t wire_bytes = WireBytes(request.protection, request.data_bytes);
  if (request.remote_offset > remote.length_bytes ||
      wire_bytes > remote.length_bytes - request.remote_offset) {
    return Refused(absl::StatusCode::kOutOfRange,
                   std::to_string(wire_bytes) + " bytes from " +
                       std::to_string(request.remote_offset) + " on are not all in the " +
                       std::to_string(remote.length_bytes) + " that were lent",
                   "protected blocks also take the bytes of their signatures",
                   "transfer less, or ask for a larger lease");
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
              " bytes follow each other, each with its signature",
          "start the transfer at the start of a block");
    }
  }
  if ((request.data_bytes - 1) / options_.piece_bytes >= kMaxPieces) {
    return Refused(absl::StatusCode::kInvalidArgument, "the transfer has too many pieces", "",
                   "raise piece_bytes, or transfer less at once");
  }
  return absl::OkStatus();
}

absl::StatusOr<TransferId> Port::Start(PeerId id, const TransferRequest& request) {
  Peer* peer = Find(id);
  if (peer == nullptr || peer->state != Peer::State::kUp) return NoPeer();
  absl::Status status = CheckRequest(*peer, request);
  if (!status.ok()) return status;
  const bool plain = IsPlain(request.protection);
  if (!plain && support_) status = support_->Supports(request.protection);
  if (!status.ok()) return status;
  if (transfers_.size() >= options_.max_transfers) {
    return Refused(absl::StatusCode::kResourceExhausted,
                   std::to_string(options_.max_transfers) + " transfers are open", "",
                   "wait until one has ended, or raise max_transfers");
  }
  auto memory = leases_.Use(request.local, request.local_offset,
                            MemoryBytes(request.protection, request.data_bytes),
                            plain ? nullptr : peer->domain.get());
  if (!memory.ok()) return memory.status();
  auto out = std::make_unique<Outgoing>();
  out->id = next_transfer_++;
  out->request = request;
  out->memory = *memory;
  out->number = peer->next_number++;
  out->piece_bytes = plain ? options_.piece_bytes : peer->piece_bytes;
  out->pieces = static_cast<uint32_t>((request.data_bytes - 1) / out->piece_bytes + 1);
  peer->outgoing.push_back(out.get());
  peer->used = ++uses_;
  if (!plain) peer->way.used = uses_;
  ++counters_.transfers;
  const TransferId transfer = out->id;
  transfers_.emplace(transfer, std::move(out));
  return transfer;
}

absl::Status Port::Cancel(TransferId transfer) {
  const auto found = transfers_.find(transfer);
  // The lender of a plain transfer may know the result before OnTransferred() runs here.
  const bool known = found != transfers_.end() && found->second->told &&
                     IsPlain(found->second->request.protection);
  if (found == transfers_.end() || known) {
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

uint64_t Port::PieceBytes(const Outgoing& out, uint32_t piece) const {
  const uint64_t before = uint64_t{piece} * out.piece_bytes;
  return std::min<uint64_t>(out.piece_bytes, out.request.data_bytes - before);
}

Notice Port::NoticeOf(const Outgoing& out, uint32_t piece) const {
  const uint64_t before = uint64_t{piece} * out.piece_bytes;
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
  const uint64_t before = uint64_t{piece} * out.piece_bytes;
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
  return peer.way.queue->Post(transfer);
}

absl::Status Port::TellRest(Peer& peer, Outgoing& out) {
  Notice notice = NoticeOf(out, out.posted);
  notice.outcome = Outcome::kCancelled;
  std::byte reply[kNoticeBytes];
  Store(notice, reply);
  return peer.way.queue->Tell(reply, out.id << kPieceBits | out.posted);
}

// Posts pieces of the oldest transfers first. Within a transfer, failed pieces are posted again before new pieces.
void Port::PumpPlain(Peer& peer) {
  for (Outgoing* out : peer.outgoing) {
    if (peer.IsFarAhead(*out)) return;
    if (!IsPlain(out->request.protection) || out->told) continue;
    const auto left = [&] { return !out->again.empty() || out->posted < out->pieces; };
    while (out->status.ok() && left() && mover_->CanMove(peer.id.index)) MovePiece(peer, *out);
    if (out->under_way == 0 && !(out->status.ok() && left())) out->told = TellEnd(peer, *out);
  }
}

void Port::MovePiece(Peer& peer, Outgoing& out) {
  uint32_t piece = out.posted;
  if (out.again.empty()) {
    ++out.posted;
    ++counters_.pieces;
  } else {
    piece = out.again.back();
    out.again.pop_back();
  }
  const uint64_t before = uint64_t{piece} * out.piece_bytes;
  ++out.under_way;
  mover_->Move(peer.id.index,
               {.read = out.request.kind == Kind::kRead,
                .memory = out.memory.data + before,
                .lkey = out.memory.lkey,
                .remote_address = out.request.remote.address + out.request.remote_offset + before,
                .rkey = out.request.remote.key,
                .bytes = static_cast<uint32_t>(PieceBytes(out, piece)),
                .cookie = out.id << kPieceBits | piece});
}

// Sends one notice for the whole transfer, after all its pieces have ended. Returns false if it can't be sent now.
bool Port::TellEnd(Peer& peer, const Outgoing& out) {
  PortWord word{.kind = PortWord::Kind::kNotice, .notice = NoticeOf(out, 0)};
  if (!out.status.ok()) word.notice.outcome = Outcome::kCancelled;
  if (IsPlain(out.request.protection)) {
    word.notice.pieces = 1;
    word.notice.data_bytes = out.moved_bytes;
  }
  return Say(peer, word);
}

void Port::OnPiece(uint32_t, uint64_t cookie, onesided::PieceEnd end) {
  Outgoing& out = *transfers_.at(TransferOf(cookie));
  --out.under_way;
  switch (end) {
    case onesided::PieceEnd::kMoved:
      out.moved_bytes += PieceBytes(out, PieceOf(cookie));
      break;
    case onesided::PieceEnd::kFailed:
      out.again.push_back(PieceOf(cookie));
      break;
    case onesided::PieceEnd::kRefused:
      if (out.status.ok()) out.status = HoldsNoMore("ask for another lease");
      break;
  }
}

// Posts pieces of the oldest transfers first, at most as many as the peer accepts notices. Writes wait until half of this limit is
// free, because the queue may wait at the end of each batch (SignedQueue::Flush()): single pieces would cost a round trip each.
// A transfer does not start while there is no queue pair, or while the queue pair is being closed.
void Port::PumpSigned(Peer& peer) {
  SignedWay& way = peer.way;
  const bool open = way.up() && !way.close_said && !way.close_heard;
  const uint32_t limit = way.up() ? std::min(options_.max_pieces_in_flight, way.there->notices) : 0;
  const bool half = way.up() && way.queue->open() > limit / 2;
  for (Outgoing* out : peer.outgoing) {
    if (peer.IsFarAhead(*out)) return;
    if (IsPlain(out->request.protection) || out->told) continue;
    if (out->posted == 0 && !out->status.ok()) {
      out->told = TellEnd(peer, *out);
      continue;
    }
    if (out->posted == 0 && !open) {
      way.wanted = true;
      continue;
    }
    if (half && out->request.kind == Kind::kWrite) return;
    while (out->posted < out->pieces && !out->told) {
      if (way.queue->open() >= limit) return;
      const bool stopped = !out->status.ok();
      if (!(stopped ? TellRest(peer, *out) : PostPiece(peer, *out)).ok()) return;  // queue failed
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
    out.status = denied ? HoldsNoMore("ask for another lease, and join the ports again") : status;
    return;
  }
  // Keeps the lowest wrong block of the transfer that is known so far.
  mismatch->block += NoticeOf(out, piece).first_block;
  const auto known = MismatchOf(out.status);
  if (known && known->block <= mismatch->block) return;
  out.status = MismatchError(*mismatch, "");
}

// Gives a peer up that has not joined, because no request is posted that could fail. Only on devices without DC.
void Port::CheckJoined(Peer& peer, int64_t now_ns) {
  if (mover_->IsReady(peer.id.index) || peer.outgoing.empty()) {
    peer.join_by_ns = 0;
    return;
  }
  if (peer.join_by_ns == 0) peer.join_by_ns = Later(now_ns, options_.join_ns);
  if (now_ns >= peer.join_by_ns) GiveUp(peer, NotJoined());
}

void Port::CheckTime(Peer& peer, int64_t now_ns) {
  CheckJoined(peer, now_ns);
  for (Outgoing* out : peer.outgoing) {
    const int64_t deadline_ns = out->request.deadline_ns;
    if (out->status.ok() && deadline_ns != 0 && now_ns >= deadline_ns) {
      out->status =
          Refused(absl::StatusCode::kDeadlineExceeded, "the transfer was not done by its deadline",
                  "the peer or the path to it is slow, or has failed", "give it more time");
    }
    if (out->status.ok() || peer.IsFarAhead(*out)) continue;
    if (out->patience_end_ns == 0) {
      out->patience_end_ns = Later(now_ns, options_.patience_ns);
    } else if (now_ns >= out->patience_end_ns) {
      return GiveUp(peer, mover_->IsReady(peer.id.index)
                              ? Refused(absl::StatusCode::kUnavailable,
                                        "pieces of a stopped transfer do not complete",
                                        "the peer hangs, or is gone", "join the ports again")
                              : NotJoined());
    }
  }
}

// Reports transfers that have ended. The user may start more transfers in the callback.
void Port::Sweep(Peer& peer) {
  const bool down = peer.state == Peer::State::kDown;
  std::vector<Outgoing*> ended;
  std::erase_if(peer.outgoing, [&](Outgoing* out) {
    const bool plain = IsPlain(out->request.protection);
    const bool all = out->told || (!plain && out->posted == out->pieces);
    if (!down && (!all || out->under_way != 0)) return false;
    ended.push_back(out);
    return true;
  });
  for (Outgoing* out : ended) {
    const bool plain = IsPlain(out->request.protection);
    const bool whole = plain ? out->told : out->posted == out->pieces;
    if (down && !whole && out->status.ok()) out->status = peer.why;
    // The transfer was stopped after all its pieces were posted, and all succeeded: its lender has received OK.
    const bool moved = out->moved_bytes == out->request.data_bytes;
    if (!plain && !out->told && moved) out->status = absl::OkStatus();
    const absl::Status status = out->status;
    const TransferId id = out->id;
    leases_.Unuse(out->request.local);
    transfers_.erase(id);
    user_.OnTransferred(id, status);
  }
}

}  // namespace sluice::bulk

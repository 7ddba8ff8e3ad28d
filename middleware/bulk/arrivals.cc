// SPDX-License-Identifier: Apache-2.0
//
// Transfers of peers into and out of lent memory. OnArrival() reports each transfer once, after its end. The order is that of their
// starts, independent of the order in which notices arrive.
#include <algorithm>
#include <string_view>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/port.h"
#include "middleware/bulk/refusal.h"
#include "transport/base/error.h"
#include "transport/integrity/convert.h"

namespace sluice::bulk {
namespace {

using integrity::Guard;
using integrity::MismatchError;
using integrity::MismatchOf;
using Kind = integrity::Transfer::Kind;

// Records an error. The mismatch with the lowest block replaces all other errors.
void Blame(Arrival* arrival, const absl::Status& status) {
  const auto mismatch = MismatchOf(status);
  const auto known = MismatchOf(arrival->status);
  const bool worse = mismatch && (!known || mismatch->block < known->block);
  if (arrival->status.ok() || worse) arrival->status = status;
}

}  // namespace

void Port::OnNotice(Peer& peer, std::span<const std::byte> bytes) {
  peer.way.used = ++uses_;
  // The peer still completes transfers that it has started.
  if (peer.way.awaited()) peer.way.awaited_ns = clock_.NowNs();
  const auto notice = LoadNotice(bytes);
  if (!notice) return GiveUpBroken(peer, "it is none");
  TakeNotice(peer, *notice);
}

void Port::TakeNotice(Peer& peer, const Notice& notice) {
  // The peer may have tried to access this memory, and been refused: kCancelled. Any other outcome breaks the protocol.
  if (notice.outcome != Outcome::kCancelled &&
      !leases_.IsFor({notice.lease, notice.epoch}, peer.domain.get())) {
    return GiveUpBroken(peer, "it names memory that this peer cannot reach");
  }
  const uint64_t ahead = notice.number - peer.next_arrival;
  if (ahead >= kMaxIncoming)
    return GiveUpBroken(peer, "its transfer has ended, or is too far ahead");
  // CheckLanded() reads the memory of each piece. A notice must not make that expensive.
  if (!IsPlain(notice.protection) && notice.data_bytes > peer.piece_bytes) {
    return GiveUpBroken(peer, "its piece is larger than the agreed maximum");
  }
  while (peer.incoming.size() <= ahead) peer.incoming.emplace_back();
  peer.used = ++uses_;
  Incoming& in = peer.incoming[ahead];
  if (in.pieces == 0) {
    in.pieces = in.end = notice.pieces;
    in.arrival = {.kind = notice.kind, .lease = {notice.lease, notice.epoch}, .tag = notice.tag};
  }
  const Arrival& arrival = in.arrival;
  if (in.pieces != notice.pieces || arrival.kind != notice.kind || arrival.tag != notice.tag ||
      arrival.lease != LeaseId{notice.lease, notice.epoch}) {
    return GiveUpBroken(peer, "it contradicts an earlier notice of its transfer");
  }
  const std::string_view fault = CountPieces(peer, in, notice);
  if (!fault.empty()) return GiveUpBroken(peer, fault);
  switch (notice.outcome) {
    case Outcome::kGood:
      CheckLanded(notice, &in.arrival);
      break;
    case Outcome::kMismatch: {
      integrity::Mismatch mismatch = notice.mismatch;
      mismatch.block += notice.first_block;
      Blame(&in.arrival, MismatchError(mismatch, ""));
      break;
    }
    case Outcome::kCancelled:
      if (IsPlain(notice.protection)) in.arrival.data_bytes += notice.data_bytes;
      Blame(&in.arrival,
            base::Error(
                absl::StatusCode::kCancelled, "the peer stopped the transfer",
                {.layer = "bulk",
                 .operation = "arrival",
                 .cause = "it was cancelled there, or failed before all its pieces were moved",
                 .remedy = "read the status of the transfer at the peer"}));
      break;
  }
  Arrive(peer);
}

// Counts an arrived piece. Returns an error text, or an empty string. Pieces arrive in order, except pieces with an error reply,
// which may arrive later: at most as many as the peer may have in flight. So only early pieces are stored, not missing pieces.
std::string_view Port::CountPieces(Peer& peer, Incoming& in, const Notice& notice) const {
  constexpr std::string_view kTwice = "it repeats a piece";
  const uint32_t piece = notice.piece;
  if (piece < in.next || piece >= in.end || in.early.contains(piece)) return kTwice;
  if (notice.outcome == Outcome::kCancelled) {
    if (piece < in.after) return kTwice;
    in.end = piece;
    return {};
  }
  in.after = std::max(in.after, piece + 1);
  if (piece != in.next) {
    if (peer.early >= 2 * options_.max_pieces_in_flight) {
      return "too many pieces arrived ahead of earlier ones of their transfer";
    }
    in.early.insert(piece);
    ++peer.early;
    return {};
  }
  ++in.next;
  if (in.early.empty()) return {};
  for (; in.early.erase(in.next) != 0; ++in.next) --peer.early;
  if (in.early.empty()) in.early = {};  // also frees its memory
  return {};
}

// Checks written data again at its destination: it was correct at the initiator, but may have been damaged since.
void Port::CheckLanded(const Notice& notice, Arrival* arrival) {
  if (notice.kind == Kind::kWrite && notice.protection.wire != Guard::kNone) {
    const auto landed = leases_.Find({notice.lease, notice.epoch}, notice.offset,
                                     WireBytes(notice.protection, notice.data_bytes));
    if (landed.empty()) {
      return Blame(arrival, base::Error(absl::StatusCode::kNotFound,
                                        "the lease expired before its data was checked",
                                        {.layer = "bulk",
                                         .operation = "arrival",
                                         .remedy = "set a longer duration for the lease"}));
    }
    auto mismatch = Check(notice.protection, integrity::Direction::kFromWire, landed);
    if (mismatch) {
      ++counters_.found_here;
      mismatch->end = integrity::End::kTarget;
      mismatch->block += notice.first_block;
      return Blame(arrival, MismatchError(*mismatch, ""));
    }
  }
  arrival->data_bytes += notice.data_bytes;
}

void Port::Arrive(Peer& peer) {
  while (!peer.incoming.empty() && peer.incoming.front().whole()) {
    const Arrival arrival = std::move(peer.incoming.front().arrival);
    peer.incoming.pop_front();
    ++peer.next_arrival;
    ++counters_.arrivals;
    user_.OnArrival(peer.id, arrival);
  }
}

}  // namespace sluice::bulk

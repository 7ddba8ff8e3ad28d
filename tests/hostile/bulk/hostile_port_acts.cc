// SPDX-License-Identifier: Apache-2.0
//
// What a hostile port does: one act at a time. A case for each operation of script.h, in one file, as they share their lies.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/hostile/bulk/hostile_port.h"
#include "tests/hostile/bulk/persona.h"
#include "tests/hostile/lies.h"

namespace sluice::hostile::bulk_port {
namespace {

using bulk::Notice;
using bulk::Outcome;
using bulk::PortWord;
using integrity::Guard;
using integrity::Protection;
using integrity::TransferKind;
using onesided::Head;
using onesided::WordKind;

constexpr uint32_t kQueueDepth = 16;
constexpr uint64_t kMostFlood = 900;
constexpr uint64_t kMostPieces = 40;
constexpr Protection kCrc{.wire = Guard::kCrc32c, .block_bytes = 512};

// One field of it.
void Lie(Notice* notice, base::SeededRandom& dice) {
  const auto small = [&dice](uint32_t truth) { return static_cast<uint32_t>(Twist(truth, dice)); };
  switch (dice.Below(13)) {
    case 0:
      notice->number = Twist(notice->number, dice);
      return;
    case 1:
      notice->piece = small(notice->piece);
      return;
    case 2:
      notice->pieces = small(notice->pieces);
      return;
    case 3:
      notice->kind = static_cast<TransferKind>(dice.Below(4));
      return;
    case 4:
      notice->outcome = static_cast<Outcome>(dice.Below(5));
      return;
    case 5:
      notice->lease = small(notice->lease);
      return;
    case 6:
      notice->epoch = small(notice->epoch);
      return;
    case 7:
      notice->first_block = small(notice->first_block);
      return;
    case 8:
      notice->offset = Twist(notice->offset, dice);
      return;
    case 9:
      notice->data_bytes = Twist(notice->data_bytes, dice);
      return;
    case 10:
      notice->tag = Twist(notice->tag, dice);
      return;
    case 11:
      notice->protection = kCrc;
      notice->protection.reference_tag = small(0);
      return;
    default:
      notice->outcome = Outcome::kMismatch;
      notice->mismatch.block = small(0);
      return;
  }
}

}  // namespace

void HostilePort::Do(const Act& act) {
  base::SeededRandom dice(act.dice);
  Persona& persona = *personas_[act.persona];
  if (act.operation == Operation::kJoin || act.operation == Operation::kJoinLying) {
    return Join(act.persona, act.operation == Operation::kJoinLying, dice);
  }
  if (!persona.is_up) {
    if (script_.manners.returns) Join(act.persona, /*lying=*/false, dice);
    return;
  }
  switch (act.operation) {
    case Operation::kReturnLease:
      Lent(persona);
      return victim_.TakeBackFrom(persona.link);
    case Operation::kPutOut:
      return victim_.PutOut(persona.link);
    case Operation::kLeave:
      return Send(persona, WordKind::kGoodbye, {}, "it has said goodbye");
    case Operation::kNotice:
    case Operation::kLieInNotice:
    case Operation::kPieces:
    case Operation::kAhead:
      return DoNotice(act, persona, dice);
    case Operation::kGarbage:
    case Operation::kTooLong:
    case Operation::kLieInHead:
    case Operation::kGrants:
    case Operation::kFloodGrants:
    case Operation::kFloodWords:
      return DoHead(act, persona, dice);
    case Operation::kQueue:
    case Operation::kQueueLying:
    case Operation::kReady:
    case Operation::kClose:
    case Operation::kClosed:
    case Operation::kTell:
    case Operation::kTellGarbage:
    case Operation::kTransfer:
      return DoQueue(act, persona, dice);
    default:
      return DoMemory(act, persona, dice);
  }
}

// ---- What it sends

bool HostilePort::HasCredit(const Persona& persona) {
  return static_cast<int32_t>(persona.granted - persona.used) > 0;
}

void HostilePort::Send(Persona& persona, WordKind kind, std::span<const std::byte> body,
                       const char* offence, const Change& change) {
  if (!persona.has_target) return;
  persona.told = persona.consumed;
  Head head{.kind = kind,
            .place = persona.there.place,
            .token = persona.there.token,
            .sequence = kind == WordKind::kWord ? persona.sequence : 0,
            .granted = persona.window + persona.consumed};
  if (script_.manners.granting == Granting::kNever) head.granted = persona.window;
  const Head truth = head;
  if (change) change(head);
  const uint32_t index = slots_->Take(/*control=*/false);
  if (index == queue::kNoSlot) return;
  // A lie that is the truth after all uses up the number as well.
  const bool comes = head.kind == WordKind::kWord && head.place == truth.place &&
                     head.token == truth.token && head.sequence == persona.sequence;
  if (comes) ++persona.sequence;
  if (head.kind == WordKind::kWord) ++persona.used;
  queue::Slot& slot = (*slots_)[index];
  onesided::Store(head, slot.data);
  std::copy(body.begin(), body.end(), slot.data + onesided::kHeadBytes);
  slot.length_bytes = static_cast<uint32_t>(onesided::kHeadBytes + body.size());
  slot.notify = slot.signal = true;
  if (offence != nullptr) offences_[index] = offence;
  queue_->Post(&persona.target, index);
  queue_->Release(index);
  ++words_;
}

void HostilePort::Say(Persona& persona, std::span<const std::byte> word, const char* offence) {
  if (HasCredit(persona)) Send(persona, WordKind::kWord, word, offence);
}

// Bytes that are no word of a port's end whoever says them.
void HostilePort::Say(Persona& persona, const PortWord& word, const char* offence) {
  const std::vector<std::byte> bytes = ToBytes(word);
  if (!bulk::LoadPortWord(bytes).has_value()) offence = "it has said what is no word";
  Say(persona, bytes, offence);
}

void HostilePort::Say(Persona& persona, const Notice& notice, const char* offence) {
  Say(persona, {.kind = PortWord::Kind::kNotice, .notice = notice}, offence);
}

// ---- Notices

Notice HostilePort::NextNotice(Persona& persona, base::SeededRandom& dice) {
  Notice notice;
  notice.number = persona.transfers++;
  notice.kind = static_cast<TransferKind>(dice.Below(2));
  notice.data_bytes = 1 + dice.Below(8192);
  notice.tag = dice.Next64();
  if (const auto lent = Lent(persona)) {
    notice.lease = lent->lease;
    notice.epoch = lent->epoch;
  }
  return notice;
}

void HostilePort::DoNotice(const Act& act, Persona& persona, base::SeededRandom& dice) {
  if (!HasCredit(persona)) return;
  Notice notice = NextNotice(persona, dice);
  switch (act.operation) {
    case Operation::kNotice:
      return Say(persona, notice);
    case Operation::kLieInNotice:
      Lie(&notice, dice);
      return Say(persona, notice);
    case Operation::kPieces: {
      notice.pieces = 1 + static_cast<uint32_t>(dice.Below(kMostPieces));
      if (OneIn(dice, 4)) notice.pieces = bulk::kMaxPieces;
      const uint64_t near = std::min<uint64_t>(notice.pieces, kMostPieces);
      const bool in_order = OneIn(dice, 2);
      for (uint32_t i = 0; i < near && HasCredit(persona); ++i) {
        notice.piece = in_order ? i : static_cast<uint32_t>(dice.Below(near));
        if (OneIn(dice, 8)) notice.piece = notice.pieces - 1;
        if (OneIn(dice, 16)) notice.outcome = static_cast<Outcome>(dice.Below(3));
        Say(persona, notice);
      }
      return;
    }
    default: {
      // Nothing of the first ever comes.
      notice.pieces = bulk::kMaxPieces;
      const uint64_t first = notice.number;
      notice.outcome = static_cast<Outcome>(dice.Below(3));
      for (uint64_t left = kMostPieces; left != 0 && HasCredit(persona); --left) {
        notice.number = first + 1 + dice.Below(bulk::kMaxPieces >> 8);
        notice.piece = static_cast<uint32_t>(dice.Below(4));
        Say(persona, notice);
      }
      return;
    }
  }
}

// ---- Words, and what stands in front of them

void HostilePort::DoHead(const Act& act, Persona& persona, base::SeededRandom& dice) {
  const auto lies_about_grant = [&dice](Head& head) {
    head.granted = static_cast<uint32_t>(Twist(head.granted, dice));
  };
  switch (act.operation) {
    case Operation::kGarbage: {
      const std::vector<std::byte> bytes =
          RandomBytes(dice.Below(onesided::kMaxWordBytes + 1), dice);
      const bool word = bulk::LoadPortWord(bytes).has_value();
      return Say(persona, bytes, word ? nullptr : "it has said what is no word");
    }
    case Operation::kTooLong:
      if (!HasCredit(persona)) return;
      return Send(persona, WordKind::kWord, RandomBytes(300 + dice.Below(600), dice));
    case Operation::kLieInHead:
      return Send(persona, static_cast<WordKind>(dice.Below(5)), RandomBytes(dice.Below(32), dice),
                  nullptr, [&dice](Head& head) {
                    switch (dice.Below(4)) {
                      case 0:
                        head.place = static_cast<uint32_t>(Twist(head.place, dice));
                        return;
                      case 1:
                        head.token = Twist(head.token, dice);
                        return;
                      case 2:
                        head.sequence = static_cast<uint32_t>(Twist(head.sequence, dice));
                        return;
                      default:
                        head.granted = static_cast<uint32_t>(Twist(head.granted, dice));
                        return;
                    }
                  });
    case Operation::kGrants:
      return Send(persona, WordKind::kGrant, {}, nullptr, lies_about_grant);
    case Operation::kFloodGrants:
      for (uint64_t left = 1 + dice.Below(kMostFlood); left != 0; --left) {
        Send(persona, WordKind::kGrant, {}, nullptr, lies_about_grant);
      }
      return;
    default: {  // kFloodWords
      const std::vector<std::byte> word = ToBytes(PortWord{.kind = PortWord::Kind::kReady});
      for (uint64_t left = 1 + dice.Below(kMostFlood); left != 0; --left) {
        Send(persona, WordKind::kWord, word);
      }
      return;
    }
  }
}

// ---- The queue pair

bool HostilePort::MakeQueue(Persona& persona) {
  CloseQueue(persona);
  auto queue = integrity::SignedQueue::Create(*device_, commands_, persona,
                                              {.max_open = kQueueDepth,
                                               .max_replies = kQueueDepth,
                                               .max_transfer_bytes = kRegionBytes,
                                               .offload = false});
  if (!queue.ok()) return false;
  persona.queue = *std::move(queue);
  Say(persona, {.kind = PortWord::Kind::kQueue,
                .qp_number = persona.queue->address().number,
                .notices = kQueueDepth,
                .reads = persona.queue->address().reads});
  return true;
}

void HostilePort::ConnectQueue(Persona& persona) {
  if (!script_.manners.connects || persona.queue_connected || persona.queue_down) return;
  integrity::QueueAddress there{.number = persona.queue_there->qp_number,
                                .gid = persona.there.gid,
                                .reads = persona.queue_there->reads};
  if (!persona.queue->Connect(there).ok()) return;
  persona.queue_connected = true;
  Say(persona, {.kind = PortWord::Kind::kReady});
}

void HostilePort::CloseQueue(Persona& persona) {
  persona.queue_connected = persona.queue_down = false;
  persona.queue_there.reset();
  if (persona.queue == nullptr) return;
  persona.queue->Fail(absl::UnavailableError("closed"));
  persona.closed.push_back(std::move(persona.queue));
}

void HostilePort::DoQueue(const Act& act, Persona& persona, base::SeededRandom& dice) {
  using Kind = PortWord::Kind;
  const bool connected = persona.queue_connected && !persona.queue_down;
  switch (act.operation) {
    case Operation::kQueue:
      // A second one beside the first is a lie.
      if (persona.queue == nullptr || OneIn(dice, 4)) MakeQueue(persona);
      return;
    case Operation::kQueueLying: {
      PortWord word{.kind = Kind::kQueue,
                    .qp_number = static_cast<uint32_t>(1 + dice.Below(1u << 24)),
                    .notices = static_cast<uint32_t>(Twist(kQueueDepth, dice)),
                    .reads = static_cast<uint8_t>(Twist(16, dice))};
      if (persona.queue_there.has_value() && OneIn(dice, 2)) {
        word.qp_number = persona.queue_there->qp_number;  // its own, to itself
      }
      return Say(persona, word);
    }
    case Operation::kReady:
      return Say(persona, {.kind = Kind::kReady});
    case Operation::kClose:
      return Say(persona, {.kind = Kind::kClose});
    case Operation::kClosed:
      if (OneIn(dice, 2)) CloseQueue(persona);
      return Say(persona, {.kind = Kind::kClosed});
    default:
      break;
  }
  if (!connected) return;
  Notice notice = NextNotice(persona, dice);
  if (OneIn(dice, 2)) {
    notice.protection = kCrc;
    notice.data_bytes = 512 * (1 + dice.Below(20));
    notice.kind = TransferKind::kWrite;
  }
  if (OneIn(dice, 4)) Lie(&notice, dice);
  std::byte reply[bulk::kNoticeBytes];
  Store(notice, reply);
  if (act.operation == Operation::kTell) {
    (void)persona.queue->Tell(reply, 0);
  } else if (act.operation == Operation::kTellGarbage) {
    (void)persona.queue->Tell(RandomBytes(1 + dice.Below(integrity::kMaxReplyBytes), dice), 0);
  } else if (const auto lent = Lent(persona)) {
    integrity::Transfer transfer{.kind = notice.kind,
                                 .protection = kCrc,
                                 .memory = lent_.data(),
                                 .lkey = lent_.lkey(),
                                 .remote_address = lent->address,
                                 .rkey = lent->key,
                                 .data_bytes = 512 * (1 + dice.Below(16)),
                                 .reply = reply};
    const uint64_t lie = dice.Below(8);
    if (lie == 0) transfer.remote_address = Twist(transfer.remote_address, dice);
    if (lie == 1) transfer.rkey = static_cast<uint32_t>(Twist(transfer.rkey, dice));
    (void)persona.queue->Post(transfer);
  }
  persona.queue->Flush();
}

// ---- Memory

std::optional<bulk::Capability> HostilePort::Lent(const Persona& persona) {
  const auto lent = victim_.LentTo(persona.link);
  if (lent && (known_.empty() || !(known_.back() == *lent))) known_.push_back(*lent);
  return lent;
}

void HostilePort::Touch(Persona& persona, queue::Operation operation, uint64_t address,
                        uint32_t key, uint32_t bytes) {
  const bool announced = operation == queue::Operation::kWriteAnnounced;
  if (!announced && slots_->free_bulk() == 0) return;
  const uint32_t index = announced ? slots_->Take(/*control=*/false) : slots_->TakeBulk();
  if (index == queue::kNoSlot) return;
  queue::Slot& slot = (*slots_)[index];
  if (!announced) {
    slot.data = lent_.data();
    slot.lkey = lent_.lkey();
  }
  slot.length_bytes = bytes;
  slot.operation = operation;
  slot.write = {.address = address, .rkey = key, .length_bytes = bytes};
  slot.notify = slot.signal = true;
  queue_->Post(&persona.target, index);
  if (announced) queue_->Release(index);
  ++writes_;
}

// A key, or an address, is twisted, not both: the keys of memory that others share are no secret from each other's point of view
// (transfer.h, Reach), and a lucky guess would be none of the victim's faults.
void HostilePort::DoMemory(const Act& act, Persona& persona, base::SeededRandom& dice) {
  using queue::Operation::kRead;
  using queue::Operation::kWrite;
  using queue::Operation::kWriteAnnounced;
  const auto lent = Lent(persona);
  if (!lent.has_value()) return;
  const auto bytes = static_cast<uint32_t>(1 + dice.Below(16 << 10));
  const uint64_t offset = dice.Below(kRegionBytes - bytes);
  switch (act.operation) {
    case Operation::kWrite:
      return Touch(persona, kWrite, lent->address + offset, lent->key, bytes);
    case Operation::kRead:
      return Touch(persona, kRead, lent->address + offset, lent->key, bytes);
    case Operation::kWriteAnywhere:
      if (OneIn(dice, 2)) {
        return Touch(persona, OneIn(dice, 2) ? kRead : kWrite, Twist(lent->address, dice),
                     lent->key, bytes);
      }
      return Touch(persona, kWrite, lent->address, static_cast<uint32_t>(Twist(lent->key, dice)),
                   bytes);
    case Operation::kWriteLate: {
      const bulk::Capability& before = known_[dice.Below(known_.size())];
      return Touch(persona, kWrite, before.address + offset, before.key, bytes);
    }
    default:  // kAnnounce
      return Touch(persona, kWriteAnnounced, lent->address, lent->key,
                   std::min<uint32_t>(bytes, 1024));
  }
}

}  // namespace sluice::hostile::bulk_port

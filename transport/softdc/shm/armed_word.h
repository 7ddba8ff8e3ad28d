// SPDX-License-Identifier: Apache-2.0
//
// ArmedWord: whether a CQ's owner wants to be woken, one word per CQ in its arena, and beside it, in
// the same line, whether the CQ was overrun.
//
//   0  none          not armed
//   1  any           armed: wake at the next completion
//   2  solicited     armed: wake at the next solicited or failed completion
//   1<<20 | link     taken: that Link's process owes the wake-up, or has given it; an event is due
//
// The word decides, the eventfd is only the bell: the owner, when the bell rang, asks
// CollectEvent() of each of its CQs on that channel. One arm gives one event. Taken by a process
// that dies before it rings: the owner rings for it (OwesAfterDeath). The link numbers are the
// owner's, below kMaxLinks; kOwnerLink is itself.
//
// The other word: what a producer does that finds no room (WhenFull), until the first one that
// overruns the queue changes it for good to "overrun, the owner does not know yet", which the owner
// changes to "overrun". Completions that are published after that are lost.
//
// Lost wake-ups: the owner arms, then looks for completions; the producer publishes, then looks at
// the word; a full fence stands between the two steps on both sides, so at least one of them sees
// the other.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_ARMED_WORD_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_ARMED_WORD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "transport/softdc/shm/area.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc::shm {

class ArmedWord {
 public:
  enum class Mode : uint32_t { kAny = 1, kSolicited = 2 };
  enum class WhenFull : uint32_t {
    kOverruns = 0,  // the queue fails
    kWaits = 1,     // producers wait until there is room
    kLoses = 2,     // the completion is lost, no more
  };
  static constexpr uint32_t kMaxLinks = 1u << 16;
  static constexpr uint32_t kOwnerLink = kMaxLinks;

  static constexpr size_t Bytes() { return kLineBytes; }

  // Owner: an unarmed word. nullopt, here and in Attach: the memory is too small or not aligned.
  static std::optional<ArmedWord> Create(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ArmedWord(new (base) Words{});
  }
  static std::optional<ArmedWord> Attach(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ArmedWord(static_cast<Words*>(base));
  }

  // Owner, before others see the queue.
  void SetWhenFull(WhenFull rule) {
    overrun_->store(static_cast<uint32_t>(rule), std::memory_order_relaxed);
  }
  bool waits_when_full() const {
    return overrun_->load(std::memory_order_relaxed) == static_cast<uint32_t>(WhenFull::kWaits);
  }
  // Producer, before it publishes: completions are lost now.
  bool overrun() const { return overrun_->load(std::memory_order_relaxed) >= kOverrunDue; }
  // Producer that found no room: true if the caller must tell the owner's firmware.
  bool Overrun() {
    auto rule = static_cast<uint32_t>(WhenFull::kOverruns);
    return overrun_->compare_exchange_strong(rule, kOverrunDue, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
  }
  // Owner: true, once, if the queue was overrun.
  bool CollectOverrun() {
    uint32_t due = kOverrunDue;
    return overrun_->compare_exchange_strong(due, kOverrunKnown, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
  }

  // Owner, ibv_req_notify_cq. Does nothing while an event is due and not collected; does not weaken
  // "any" to "solicited" (man ibv_req_notify_cq: the call for any completion wins). Afterwards the
  // program looks for completions that came before.
  void Arm(Mode mode) {
    uint32_t seen = word_->load(std::memory_order_relaxed);
    const auto wanted = static_cast<uint32_t>(mode);
    while (seen == kNone || (seen == kSolicited && wanted == kAny)) {
      if (word_->compare_exchange_weak(seen, wanted, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
        break;
      }
    }
    FullFence();
  }

  // Producer, after it published: true if the caller must write the CQ's eventfd now. One full
  // fence and one load of a line that rarely changes; call it once per doorbell. solicited: one of
  // the CQEs published since the last call was solicited or not successful. Also the owner's, for
  // completions of its own.
  bool TryTake(uint32_t link, bool solicited) {
    FullFence();
    uint32_t seen = word_->load(std::memory_order_relaxed);
    while (seen == kAny || (seen == kSolicited && solicited)) {
      if (word_->compare_exchange_weak(seen, kTaken | link, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
        SOFTDC_KILL_POINT(kArmedTaken);
        return true;
      }
    }
    return false;
  }

  // Owner, when the bell rang: true if this CQ has an event, which is thereby collected; the CQ is
  // unarmed.
  bool CollectEvent() {
    uint32_t seen = word_->load(std::memory_order_relaxed);
    while ((seen & kTaken) != 0) {
      if (word_->compare_exchange_weak(seen, kNone, std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  // Owner, when a Link's process has died: true if the caller must write the eventfd, because the
  // dead one may have published without looking, or looked without ringing. unread: the Link's ring
  // holds CQEs that count for the mode (all of them do, if it is not known). May ring once too
  // often; CollectEvent sorts it out.
  bool OwesAfterDeath(uint32_t link, bool unread) {
    if (word_->load(std::memory_order_acquire) == (kTaken | link)) return true;
    return unread && TryTake(kOwnerLink, true);
  }

 private:
  static constexpr uint32_t kNone = 0;
  static constexpr uint32_t kAny = static_cast<uint32_t>(Mode::kAny);
  static constexpr uint32_t kSolicited = static_cast<uint32_t>(Mode::kSolicited);
  static constexpr uint32_t kTaken = 1u << 20;
  static_assert(kOwnerLink < kTaken);
  static constexpr uint32_t kOverrunDue = 3;
  static constexpr uint32_t kOverrunKnown = 4;

  struct Words {
    std::atomic<uint32_t> armed;
    std::atomic<uint32_t> overrun;
  };

  explicit ArmedWord(Words* words) : word_(&words->armed), overrun_(&words->overrun) {}
  static bool Fits(const void* base, size_t size_bytes) {
    return base != nullptr && size_bytes >= Bytes() && IsLineAligned(base);
  }

  std::atomic<uint32_t>* word_;
  std::atomic<uint32_t>* overrun_;
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_ARMED_WORD_H_

// SPDX-License-Identifier: Apache-2.0
//
// ArmedWord: two words per CQ in the arena of the CQ's owner, in one line. The first word says whether the
// owner wants to be woken. The second word says whether the CQ was overrun.
//
//   0  none          not armed
//   1  any           armed: wake at the next completion
//   2  solicited     armed: wake at the next solicited or failed completion
//   1<<20 | link     taken: the process of that Link must wake the owner, or has done so; an event is due
//
// The word holds the state. The eventfd only wakes the owner, which then calls CollectEvent() for each of its
// CQs on that channel. Each arm gives one event. If a process takes the word and dies before it writes the
// eventfd, the owner writes the eventfd (OwesAfterDeath). The owner assigns the link numbers, which are below
// kMaxLinks. kOwnerLink stands for the owner.
//
// The second word holds the rule for a producer that finds no room (WhenFull). The first producer that
// overruns the queue changes the word for good to "overrun, the owner does not know yet". The owner changes
// it to "overrun". Completions that are published after that are lost.
//
// No wake-up is lost: the owner arms the word, then looks for completions. The producer publishes, then reads
// the word. Both sides have a full fence between the two steps, so at least one of them sees the step of the
// other.
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
    kLoses = 2,     // only the completion is lost
  };
  static constexpr uint32_t kMaxLinks = 1u << 16;
  static constexpr uint32_t kOwnerLink = kMaxLinks;

  static constexpr size_t Bytes() { return kLineBytes; }

  // Owner: creates an unarmed word. Create and Attach return nullopt if the memory is too small or not
  // aligned.
  static std::optional<ArmedWord> Create(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ArmedWord(new (base) Words{});
  }
  static std::optional<ArmedWord> Attach(void* base, size_t size_bytes) {
    if (!Fits(base, size_bytes)) return std::nullopt;
    return ArmedWord(static_cast<Words*>(base));
  }

  // Owner: call it before other processes see the queue.
  void SetWhenFull(WhenFull rule) {
    overrun_->store(static_cast<uint32_t>(rule), std::memory_order_relaxed);
  }
  bool waits_when_full() const {
    return overrun_->load(std::memory_order_relaxed) == static_cast<uint32_t>(WhenFull::kWaits);
  }
  // Producer, before it publishes: returns true if the queue was overrun, so that further completions are
  // lost.
  bool overrun() const { return overrun_->load(std::memory_order_relaxed) >= kOverrunDue; }
  // Producer that found no room: returns true if the caller must notify the firmware of the owner.
  bool Overrun() {
    auto rule = static_cast<uint32_t>(WhenFull::kOverruns);
    return overrun_->compare_exchange_strong(rule, kOverrunDue, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
  }
  // Owner: returns true once if the queue was overrun.
  bool CollectOverrun() {
    uint32_t due = kOverrunDue;
    return overrun_->compare_exchange_strong(due, kOverrunKnown, std::memory_order_acq_rel,
                                             std::memory_order_relaxed);
  }

  // Owner, for ibv_req_notify_cq: arms the word. Does nothing while an event is due and not collected. Does
  // not weaken "any" to "solicited" (man ibv_req_notify_cq: the call for any completion wins). After the
  // call, the program must look for completions that arrived before it.
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

  // Producer, after it published: returns true if the caller must write the eventfd of the CQ now. Costs one
  // full fence and one load of a line that rarely changes, so call it once per doorbell. solicited: at least
  // one CQE published since the last call was solicited or not successful. The owner calls it too, for its
  // own completions.
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

  // Owner, after the eventfd woke it: returns true if this CQ has an event. The call collects the event and
  // leaves the CQ unarmed.
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

  // Owner, when the process of a Link has died: returns true if the caller must write the eventfd. The dead
  // process may have published without reading the word, or taken the word without writing the eventfd.
  // unread: the ring of the Link holds CQEs that count for the mode. If the mode is not known, all CQEs
  // count. May return true once too often; CollectEvent handles that case.
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

// SPDX-License-Identifier: Apache-2.0
//
// PeerWindows: the windows between this side and one peer, in both directions, where they differ from those of the handshake
// (docs/decisions/0067). WindowBooks: those of all peers, and the peers that have something to do or to send. Private to
// transport/endpoint; used by windows.cc and window_turns.cc.
//
// Purpose       A peer that uses the window of the handshake has no record. SendCredits and ReceiveCredits hold the number of
//               receive buffers in use.
// Ownership     The endpoint, by the peer's index, until the peer's record is free.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_
#define SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "transport/endpoint/reception.h"

namespace sluice::endpoint {

// A peer that keeps what others need is disconnected after so many rounds of EndpointImpl::AnswerRoundNs().
inline constexpr int64_t kAnswerRounds = 3;

// What MoveWindows() has to do.
enum class WindowWork : uint8_t {
  kNone,
  kLook,  // to look in each pass whether something has come
  kNow,   // something that nothing else announces
};

struct PeerWindows {
  enum class Out : uint8_t {
    kNone,    // this side has no window: it sends nothing new
    kAsked,   // likewise, and waits for one
    kActive,  // it has one
  };

  // The window into which this side sends.
  uint32_t asked = 0;        // number of the last ask; 0: the window of the handshake
  uint32_t used_before = 0;  // SendCredits::used() then
  int64_t asked_ns = 0;      // when it was last asked for
  uint8_t asks = 0;          // repeats of the last ask
  Out out = Out::kNone;
  bool recalled = false;   // it is to be returned
  bool word_due = false;   // an ask, or a return
  bool postponed = false;  // in the list of those that ask when a send buffer is free

  // The window into which the peer sends.
  bool waits = false;       // for window `number`
  bool in_line = false;     // likewise, and its last window is free
  bool returning = false;   // free when `until` messages have been taken
  bool recalling = false;   // the peer was asked to return it
  bool late = false;        // it should have come
  bool grant_due = false;   // or a repeated grant
  bool recall_due = false;  // or a repeated recall
  bool listed = false;      // in the list of those who are owed a word
  bool watched = false;     // in the list of those whose window has to be free in time
  uint8_t recalls = 0;      // repeats of the recall
  uint32_t number = 0;      // of the window that the peer has, or waits for
  uint32_t until = 0;
  uint32_t before = 0;      // the window that it returned without a recall; 0: none
  int64_t recalled_ns = 0;  // the recall was posted; -1: not yet, or it failed
  int64_t said_ns = 0;      // likewise, the last time
  int64_t returned_ns = 0;

  // If it is not free.
  Holding holding() const {
    if (late) return Holding::kLate;
    return recalling || returning ? Holding::kComing : Holding::kHeld;
  }
};

struct WindowBooks {
  absl::flat_hash_map<uint32_t, PeerWindows> of_peer;  // by the peer's index
  std::vector<PeerId> words;                           // peers that are owed a word about a window
  bool words_wait = false;                             // all of them wait for control slots
  std::vector<PeerId> held_returns;   // peers whose recalled window this side can't return yet
  std::deque<PeerId> postponed_asks;  // peers that need a window, and a send buffer first
  std::vector<PeerId> returning;  // peers whose window was returned; messages of it may be missing
  std::vector<PeerId> recalls;    // peers whose window was recalled, and is not free yet
  WindowWork work = WindowWork::kNone;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_

// SPDX-License-Identifier: Apache-2.0
//
// PeerWindows: the windows between this side and one peer, in both directions, if they differ from the windows of the handshake
// (docs/decisions/0067). WindowBooks: the windows of all peers, and lists of peers with work to do or messages to send. Private to
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

// Number of rounds of EndpointImpl::AnswerRoundNs() after which a peer is disconnected if it keeps resources that other peers need.
inline constexpr int64_t kAnswerRounds = 3;

// Work of MoveWindows().
enum class WindowWork : uint8_t {
  kNone,
  kLook,  // to check in each pass; a sleep may come first
  kNow,   // to do before a sleep: no event announces it
};

struct PeerWindows {
  enum class Out : uint8_t {
    kNone,    // no window: this side sends no new messages
    kAsked,   // no window: this side has asked for a window
    kActive,  // this side has a window
  };

  // The window of this side, which the peer grants.
  uint32_t asked = 0;        // number of the last ask; 0: the window of the handshake
  uint32_t used_before = 0;  // SendCredits::used() at that ask
  int64_t asked_ns = 0;      // time of the last ask or grant
  uint8_t asks = 0;          // repeats of the last ask
  Out out = Out::kNone;
  bool recalled = false;   // this side must return it
  bool word_due = false;   // an ask or a return is due
  bool postponed = false;  // in WindowBooks::postponed_asks

  // The window of the peer, which this side grants.
  bool waits = false;       // the peer waits for window `number`
  bool in_line = false;     // in Reception::line: it waits, and its last window is free
  bool returning = false;   // returned; free when `until` messages have been taken
  bool recalling = false;   // the peer was asked to return it
  bool late = false;        // its return is overdue
  bool grant_due = false;   // a grant, or its repeat, is due
  bool recall_due = false;  // a recall, or its repeat, is due
  bool listed = false;      // in WindowBooks::words
  bool watched = false;     // in WindowBooks::recalls
  uint8_t recalls = 0;      // repeats of the recall
  uint32_t number = 0;      // of the window that the peer has, or waits for
  uint32_t until = 0;       // number of messages sent up to the return
  uint32_t before = 0;      // size of the window that it returned without a recall; 0: none
  int64_t recalled_ns = 0;  // time at which the recall was posted; -1: not posted, or it failed
  int64_t said_ns = 0;      // time of the last recall, repeats included
  int64_t returned_ns = 0;

  // Returns the state of the peer's window. Valid if the window is not free.
  Holding holding() const {
    if (late) return Holding::kLate;
    return recalling || returning ? Holding::kComing : Holding::kHeld;
  }
};

struct WindowBooks {
  absl::flat_hash_map<uint32_t, PeerWindows> of_peer;  // by the peer's index
  std::vector<PeerId> words;                           // peers to which a window message is due
  std::vector<PeerId> held_returns;   // peers whose recalled window can't be returned yet
  std::deque<PeerId> postponed_asks;  // peers that wait for a send buffer, then for a window
  std::vector<PeerId> returning;  // peers whose window was returned; its messages may be missing
  std::vector<PeerId> recalls;  // peers whose window was recalled or returned, and is not free yet
  WindowWork work = WindowWork::kNone;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_

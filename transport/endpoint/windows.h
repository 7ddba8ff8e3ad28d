// SPDX-License-Identifier: Apache-2.0
//
// PeerWindows: the windows between this side and one peer, in both directions, where they differ from those of the handshake
// (docs/decisions/0067). Private to transport/endpoint; used by windows.cc.
//
// Purpose       A peer that uses the window of the handshake has no record. SendCredits and ReceiveCredits hold the number of
//               receive buffers in use.
// Ownership     The endpoint, by the peer's index, until the peer's record is free.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_
#define SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_

#include <cstdint>

namespace sluice::endpoint {

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
  bool owes_word = false;  // an ask, or a return

  // The window into which the peer sends.
  bool waits = false;        // for window `number`
  bool returning = false;    // free when `until` messages have been taken
  bool recalling = false;    // the peer was asked to return it
  bool owes_grant = false;   // or a repeated grant
  bool owes_recall = false;  // or a repeated recall
  bool listed = false;       // in the list of those who are owed a word
  bool watched = false;      // in the list of those whose window has to be free in time
  uint32_t number = 0;       // of the window that the peer has, or waits for
  uint32_t until = 0;
  int64_t due_ns = 0;  // recalled or returned: when it has to be free
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_WINDOWS_H_

// SPDX-License-Identifier: Apache-2.0
//
// Windows of receive buffers, which go to the peers that use them (docs/decisions/0067, docs/models/credit_windows.pml): messages
// about windows, and the sender. The receiver is in window_turns.cc.
//
//   sender      active --recalled, used--> none --messages, no window--> asked --grant--> active
//   receiver    in use --another peer waits--> recalled --return--> returned --all messages taken--> free --next in line--> in use
#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using Out = PeerWindows::Out;

// An ask without an answer is repeated after dead_peer_ns / kAskPart, then each time after twice the time.
constexpr int64_t kAskPart = 8;
constexpr uint8_t kMostDoublings = 10;
// Number of control slots that messages about windows leave for other messages: a goodbye that finds no slot is not sent. Recalls leave
// more slots, because many recalls are sent at the same time.
constexpr size_t kLeftByWords = kControlSlots / 4;
constexpr size_t kLeftByRecalls = kControlSlots / 2;

}  // namespace

// Returns the record of the peer, and creates it if necessary. Valid until the next call, or until the peer ends.
PeerWindows& EndpointImpl::WindowsOf(const Peer* peer) {
  const auto [it, fresh] = windows_.of_peer.try_emplace(peer->index());
  if (fresh && peer->send.window(peer->remote_window) != 0) it->second.out = Out::kActive;
  return it->second;
}

// Grants the window that is in the terms of the handshake.
void EndpointImpl::FirstWindow(Peer* peer) {
  Reception& reception = ReceptionOf(*peer);
  const uint32_t window = reception.FirstWindow(nominal_window_);
  peer->receive.Start(window);
  peer->receive.Touch(look_);  // the peer is not idle yet
  reception.Promise(peer->index(), window);
}

// Frees the windows of a peer whose record is about to be free.
void EndpointImpl::EndWindows(Peer* peer) {
  Reception& reception = ReceptionOf(*peer);
  const auto it = windows_.of_peer.find(peer->index());
  const Holding holding = it == windows_.of_peer.end() ? Holding::kHeld : it->second.holding();
  reception.Free(peer->index(), peer->receive.window(), holding);
  peer->receive.Resize(0);
  if (it != windows_.of_peer.end()) {
    LeaveLine(&reception, &it->second);
    windows_.of_peer.erase(it);
  }
  if (reception.waiting != 0) windows_.work = WindowWork::kNow;
}

// ---- Messages of the peer

void EndpointImpl::OnWindowWord(Peer* peer, peer::Kind kind, peer::Bytes body) {
  if (closed_) return;
  const auto word = peer::DecodeWindowWord(body);
  if (!word.has_value()) {
    ++counters_.dropped_malformed;
    return;
  }
  // The prefix contains a report, which may replace a requested report.
  OnReport(peer);
  switch (kind) {
    case peer::Kind::kWindowAsk:
      return OnWindowAsk(peer, *word);
    case peer::Kind::kWindowGrant:
      return OnWindowGrant(peer, *word);
    case peer::Kind::kWindowRecall:
      return OnWindowRecall(peer, *word);
    default:
      return OnWindowReturn(peer, *word);
  }
}

// Numbers increase by one, so an ask is for the next window, repeated or late, or invalid.
void EndpointImpl::OnWindowAsk(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.number);
  if (ahead < 0) return;
  if (ahead == 0) {  // a repeat: the grant may have been lost
    if (windows.waits || windows.returning || peer->receive.window() == 0) return;
    windows.grant_due = true;
    return OweWindowWord(peer, &windows);
  }
  if (ahead > 1 || windows.waits) {
    return EndWindowOffender(peer, "it asks for window " + std::to_string(word.number) +
                                       ", and has " + (windows.waits ? "asked for " : "had ") +
                                       std::to_string(windows.number));
  }
  // The ask also returns the previous window, in case the return was lost.
  if (peer->receive.window() != 0 && !BeginReturn(peer, word.count)) return;
  windows.number = word.number;
  windows.waits = true;
  windows.in_line = peer->receive.window() == 0;
  if (windows.in_line) ReceptionOf(*peer).Enter(peer->id());
  windows_.work = WindowWork::kNow;
}

void EndpointImpl::OnWindowReturn(Peer* peer, const peer::WindowWord& word) {
  const PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.number);
  if (ahead < 0) return;
  if (ahead > 0 || windows.waits) {
    return EndWindowOffender(
        peer, "it returns window " + std::to_string(word.number) + ", which it does not have");
  }
  if (peer->receive.window() != 0) BeginReturn(peer, word.count);  // otherwise it is a repeat
}

// Begins the return of the peer's window after `sent` messages. Returns false if the peer was ended because `sent` is invalid.
bool EndpointImpl::BeginReturn(Peer* peer, uint32_t sent) {
  PeerWindows& windows = WindowsOf(peer);
  const uint32_t window = peer->receive.window();
  const bool again = windows.returning;
  const auto missing = static_cast<int32_t>(sent - peer->receive.consumed());
  if (missing > static_cast<int32_t>(window) || (again && sent != windows.until)) {
    EndWindowOffender(peer, "it says that it has sent " + std::to_string(sent) +
                                " messages: " + std::to_string(peer->receive.consumed()) +
                                " have come, and its window is " + std::to_string(window));
    return false;
  }
  if (again) return true;
  windows.before = windows.recalling ? 0 : window;
  if (!windows.recalling) ReceptionOf(*peer).Expect(peer->index(), window);
  windows.returning = true;
  windows.grant_due = windows.recall_due = false;
  windows.until = sent;
  windows.returned_ns = clock_.NowNs();
  WatchReturn(peer, &windows);
  windows_.returning.push_back(peer->id());
  windows_.work = WindowWork::kNow;
  return true;
}

void EndpointImpl::OnWindowGrant(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.asked);
  if (ahead > 0 || word.count == 0 || word.count > peer->remote_window) {
    return EndWindowOffender(peer, "it grants window " + std::to_string(word.number) + " of " +
                                       std::to_string(word.count) + " messages; window " +
                                       std::to_string(windows.asked) + " was asked for, of " +
                                       std::to_string(peer->remote_window) + " at most");
  }
  if (ahead < 0 || windows.out != Out::kAsked) return;
  windows.out = Out::kActive;
  windows.recalled = false;
  windows.asked_ns = clock_.NowNs();
  ResizeSendWindow(peer, word.count);
}

void EndpointImpl::OnWindowRecall(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.asked);
  if (ahead > 0) {
    return EndWindowOffender(peer, "it recalls window " + std::to_string(word.number) +
                                       ", and has granted " + std::to_string(windows.asked));
  }
  if (windows.out == Out::kActive) {
    if (ahead < 0) return;
    windows.recalled = true;
  } else {
    windows.word_due = true;  // the return, or the ask that implies it, may have been lost
  }
  OweWindowWord(peer, &windows);
}

void EndpointImpl::EndWindowOffender(Peer* peer, const std::string& cause) {
  Fail(peer, base::Error(absl::StatusCode::kUnavailable, "the peer broke the rules of windows",
                         {.layer = "endpoint",
                          .peer = peer->address(),
                          .operation = "receive",
                          .cause = cause,
                          .remedy = "run the same release of Sluice on both sides; a peer that is "
                                    "meant to do this holds the secret: replace it"}));
}

// ---- Sender

void EndpointImpl::ResizeSendWindow(Peer* peer, uint32_t in_use) {
  peer->send.Resize(peer->remote_window, in_use);
  if (SendRing* ring = RingTo(*peer)) ring->SetLimit(peer->send, peer->remote_window);
}

// Called if there is a message to send, and no window.
void EndpointImpl::AskForWindow(Peer* peer) {
  PeerWindows& windows = WindowsOf(peer);
  if (windows.out != Out::kNone) return;
  // Without a send buffer the window would be of no use: it would be recalled, returned, and asked for again.
  if (slots_->free_data() == 0) {
    if (!std::exchange(windows.postponed, true)) windows_.postponed_asks.push_back(peer->id());
    windows_.work = std::max(windows_.work, WindowWork::kLook);
    return;
  }
  windows.out = Out::kAsked;
  ++windows.asked;
  windows.used_before = peer->send.used();
  windows.asked_ns = clock_.NowNs();
  windows.asks = 0;
  windows.word_due = true;
  ++counters_.windows_asked;
  OweWindowWord(peer, &windows);
}

// Repeats an ask, because a control message may be lost without an error: on a stream that the peer's target has left
// (docs/decisions/0067).
void EndpointImpl::AskForWindowAgain(Peer* peer) {
  PeerWindows& windows = WindowsOf(peer);
  const int64_t now_ns = clock_.NowNs();
  if (windows.out == Out::kNone) return AskForWindow(peer);
  // The time doubles each time, so that many waiting peers do not fill the receiver's control queue.
  const int64_t period_ns = options_.dead_peer_ns / kAskPart << windows.asks;
  if (now_ns - windows.asked_ns < period_ns) return;
  windows.asked_ns = now_ns;
  if (windows.asks < kMostDoublings) ++windows.asks;
  windows.word_due = true;
  OweWindowWord(peer, &windows);
}

// Returns whether the window may be returned. It stays while a message is reserved, because the message may still be sent. If messages
// wait, it also stays until a message has used it, unless no send buffer is free. Otherwise recalls and asks could alternate without end.
bool EndpointImpl::MayReturnWindow(const Peer& peer, const PeerWindows& windows) const {
  if (peer.committed != static_cast<uint16_t>(peer.send.used())) return false;
  return !peer.blocked || peer.send.used() != windows.used_before || slots_->free_data() == 0;
}

void EndpointImpl::ReturnWindow(Peer* peer, PeerWindows* windows) {
  ResizeSendWindow(peer, 0);
  windows->recalled = false;
  windows->out = Out::kNone;
  windows->word_due = true;
  if (peer->blocked) AskForWindow(peer);  // the ask includes the return
}

// ---- Messages to the peer

void EndpointImpl::OweWindowWord(Peer* peer, PeerWindows* windows) {
  if (std::exchange(windows->listed, true)) return;
  windows_.words.push_back(peer->id());
}

void EndpointImpl::SayWindowWords() {
  size_t kept = 0;
  for (size_t i = 0; i < windows_.words.size(); ++i) {
    const PeerId id = windows_.words[i];
    Peer* peer = Find(id);
    const auto it = peer == nullptr ? windows_.of_peer.end() : windows_.of_peer.find(id.index);
    if (it == windows_.of_peer.end()) continue;
    if (SayWindowWords(peer, &it->second)) {
      it->second.listed = false;
    } else {
      windows_.words[kept++] = id;  // it may take no control slot: retried later
    }
  }
  windows_.words.resize(kept);
}

// Returns false if too few control slots are free, or the peer has its share of them.
bool EndpointImpl::SayWindowWords(Peer* peer, PeerWindows* windows) {
  if (peer->state != peer::State::kUp) return true;
  const auto say = [&](bool* due, peer::Kind kind, const peer::WindowWord& word) {
    if (!*due) return true;
    const bool recall = kind == peer::Kind::kWindowRecall;
    if (slots_->free_control() <= (recall ? kLeftByRecalls : kLeftByWords)) return false;
    if (!PostBody(peer, kind, peer::EncodeWindowWord(word))) return false;
    *due = false;
    if (recall) {
      windows->said_ns = clock_.NowNs();
      if (windows->recalled_ns < 0) windows->recalled_ns = windows->said_ns;
    }
    return true;
  };
  if (windows->recalled) {
    if (MayReturnWindow(*peer, *windows)) {
      ReturnWindow(peer, windows);
    } else {
      windows_.held_returns.push_back(peer->id());
      windows_.work = std::max(windows_.work, WindowWork::kLook);
      StartWindowTimer(options_.dead_peer_ns / kAskPart);
    }
  }
  const auto kind =
      windows->out == Out::kAsked ? peer::Kind::kWindowAsk : peer::Kind::kWindowReturn;
  if (say(&windows->grant_due, peer::Kind::kWindowGrant,
          {.number = windows->number, .count = peer->receive.window()}) &&
      say(&windows->word_due, kind, {.number = windows->asked, .count = peer->send.used()}) &&
      say(&windows->recall_due, peer::Kind::kWindowRecall,
          {.number = windows->number, .count = 0})) {
    return true;
  }
  // The peer does not take the messages that it was sent before the recall. Its time runs, so that it can't keep its window that way.
  if (windows->recall_due && windows->recalled_ns < 0 && slots_->free_control() > kLeftByRecalls) {
    windows->recalled_ns = windows->said_ns = clock_.NowNs();
  }
  return false;
}

// Called after requests to the peer failed. Repeats the messages that follow from the present state.
void EndpointImpl::RepeatWindowWords(Peer* peer) {
  const auto it = windows_.of_peer.find(peer->index());
  if (it == windows_.of_peer.end()) return;
  PeerWindows& windows = it->second;
  windows.word_due = windows.out != Out::kActive;
  const bool has_window = peer->receive.window() != 0 && !windows.returning;
  windows.grant_due = has_window && windows.number != 0;
  windows.recall_due = has_window && windows.recalling;
  if (windows.recall_due) windows.recalled_ns = -1;  // the peer may not have received it
  OweWindowWord(peer, &windows);
}

}  // namespace sluice::endpoint

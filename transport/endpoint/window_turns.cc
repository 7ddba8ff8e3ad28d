// SPDX-License-Identifier: Apache-2.0
//
// Windows of receive buffers at the receiver: the line of waiting peers, recalls, and the end of a peer that keeps its window
// (docs/decisions/0067).
//
//   in use --another peer waits--> recalled --return--> returned --all messages taken--> free --next in line--> in use
//                                     +-- no answer for kLateNs --> late: others are recalled --keepalive--> disconnected
#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

// Maximum number of windows, in the order of grants, that are checked to find a window to recall.
constexpr uint32_t kMostLooked = 64;
// A peer with a message in the last kUsedLooks looks uses its window. A peer without a message in the last kIdleLooks looks is idle.
constexpr uint32_t kUsedLooks = 64;
constexpr uint32_t kIdleLooks = 1024;
// Maximum number of windows recalled in one pass.
constexpr uint32_t kMostRecalls = 16;
// A window that was recalled or returned is late after this time, or after an eighth of dead_peer_ns if that is shorter.
constexpr int64_t kLateNs = 10'000'000;
// A recall without an answer is repeated after dead_peer_ns / kRepeatPart, then each time after twice the time, at most kMostRepeats
// times.
constexpr int64_t kRepeatPart = 8;
constexpr uint8_t kMostRepeats = 9;
// Entries of peers that have left the line are erased if there are more than kMostLeft plus the number of waiting peers.
constexpr size_t kMostLeft = 64;

absl::Status NotReturned(const Peer& peer, bool answered) {
  return base::Error(
      absl::StatusCode::kUnavailable, "the peer does not return its receive buffers",
      {.layer = "endpoint",
       .peer = peer.address(),
       .operation = "receive",
       .cause = answered ? "messages that it says it has sent have not arrived"
                         : "others wait for the buffers, and it has not answered: its program is "
                           "busy, or holds a reserved message",
       .remedy = answered ? "reconnect"
                          : "reconnect; raise limits.keepalive if the peer may be busy that long, "
                            "or limits.receive_buffers"});
}

int64_t LateNs(const Options& options) {
  return std::min(kLateNs, options.dead_peer_ns / kRepeatPart);
}

}  // namespace

// ---- The line

// Removes a peer from the line. Its entry stays until it is in front, or until there are too many such entries.
void EndpointImpl::LeaveLine(Reception* reception, PeerWindows* windows) {
  if (!std::exchange(windows->in_line, false)) return;
  --reception->waiting;
  if (reception->line.size() - reception->waiting <= reception->waiting + kMostLeft) return;
  std::erase_if(reception->line, [this](PeerId id) { return WaiterAt(id) == nullptr; });
}

// Returns null if the peer of the entry has left the line.
Peer* EndpointImpl::WaiterAt(PeerId id) {
  Peer* peer = Find(id);
  if (peer == nullptr) return nullptr;
  const auto it = windows_.of_peer.find(id.index);
  return it != windows_.of_peer.end() && it->second.in_line ? peer : nullptr;
}

// ---- Turns

void EndpointImpl::MoveWindows() {
  windows_.work = WindowWork::kNone;
  if (closed_) return;
  for (const PeerId id : std::exchange(windows_.held_returns, {})) {
    Peer* peer = Find(id);
    if (peer != nullptr) OweWindowWord(peer, &WindowsOf(peer));
  }
  // At most as many asks as send buffers are free.
  const size_t asks = std::min<size_t>(windows_.postponed_asks.size(), slots_->free_data());
  for (size_t i = 0; i < asks; ++i) {
    Peer* peer = Find(windows_.postponed_asks.front());
    windows_.postponed_asks.pop_front();
    if (peer == nullptr) continue;
    WindowsOf(peer).postponed = false;
    if (peer->state == peer::State::kUp && peer->blocked) AskForWindow(peer);
  }
  SettleReturns();
  for (Reception& reception : receptions_) {
    if (reception.waiting == 0) continue;
    GrantWindows(&reception);
    RecallWindows(&reception);
  }
  if (!windows_.returning.empty() || !windows_.postponed_asks.empty()) {
    windows_.work = std::max(windows_.work, WindowWork::kLook);
  }
}

// Frees the returned windows whose messages have all arrived. A return may overtake messages that were sent before it, because data
// and control have separate queues.
void EndpointImpl::SettleReturns() {
  size_t kept = 0;
  for (size_t i = 0; i < windows_.returning.size(); ++i) {
    const PeerId id = windows_.returning[i];
    Peer* peer = Find(id);
    if (peer == nullptr || peer->state != peer::State::kUp) continue;
    PeerWindows& windows = WindowsOf(peer);
    const auto ahead = static_cast<int32_t>(peer->receive.consumed() - windows.until);
    if (ahead < 0) {
      windows_.returning[kept++] = id;
      continue;
    }
    // The peer still sends in a window that it has returned. That is the same as sending without a grant.
    if (ahead > 0) {
      EndOffender(peer, "it has sent " + std::to_string(peer->receive.consumed()) +
                            " messages, and said that it returned its window after " +
                            std::to_string(windows.until));
      continue;
    }
    ReceptionOf(*peer).Free(peer->index(), peer->receive.window(), windows.holding());
    peer->receive.Resize(0);
    windows.returning = windows.recalling = windows.late = false;
    windows.in_line = windows.waits;
    if (windows.before != 0 && windows.waits) {
      // The peer returned its window to get a larger window, so it goes to the front. The others waited without that window before.
      ++ReceptionOf(*peer).waiting;
      ReceptionOf(*peer).line.push_front(id);
    } else if (windows.waits) {
      ReceptionOf(*peer).Enter(id);
    }
    // The peer keeps its messages until they are acknowledged: by a grant in this pass, or by a report.
    if (!windows.waits || peer->receive.unreported()) {
      peer->report_requested_by_peer = true;
      QueueCreditReport(peer);
    }
  }
  windows_.returning.resize(kept);
}

void EndpointImpl::GrantWindows(Reception* reception) {
  while (reception->waiting != 0) {
    const PeerId id = reception->line.front();
    Peer* peer = WaiterAt(id);
    if (peer != nullptr) {
      PeerWindows& windows = WindowsOf(peer);
      if (peer->state == peer::State::kUp) {
        const uint32_t window = reception->WindowForWaiter(nominal_window_, windows.before);
        if (window == 0) return;
        windows.waits = false;
        windows.grant_due = true;
        windows.before = 0;
        // Before the limit rises, because messages of this look were sent without a window.
        peer->receive.Touch(look_);
        peer->receive.Resize(window);
        reception->Promise(peer->index(), window);
        reception->short_window = window < nominal_window_;
        ++counters_.windows_granted;
        OweWindowWord(peer, &windows);
      }
      --reception->waiting;
      windows.in_line = false;
    }
    reception->line.pop_front();
  }
}

void EndpointImpl::RecallWindows(Reception* reception) {
  if (reception->waiting == 0) {
    // The last peer in the line got less than a nominal window. An idle peer's window is recalled, in case that peer asks for more.
    if (!std::exchange(reception->short_window, false)) return;
    if (reception->left() + reception->coming >= nominal_window_) return;
    Peer* peer = HolderToRecall(*reception, kIdleLooks, /*or_first=*/false);
    if (peer != nullptr) Recall(reception, peer);
    return;
  }
  for (uint32_t count = 0; reception->Missing(nominal_window_) != 0; ++count) {
    Peer* peer =
        count < kMostRecalls ? HolderToRecall(*reception, kUsedLooks, /*or_first=*/true) : nullptr;
    if (peer == nullptr) {
      if (count == kMostRecalls) windows_.work = WindowWork::kNow;
      return;
    }
    Recall(reception, peer);
  }
}

void EndpointImpl::Recall(Reception* reception, Peer* peer) {
  PeerWindows& windows = WindowsOf(peer);
  windows.recalling = true;
  windows.recall_due = true;
  windows.recalled_ns = -1;
  windows.recalls = 0;
  WatchReturn(peer, &windows);
  reception->Expect(peer->index(), peer->receive.window());
  ++counters_.windows_recalled;
  OweWindowWord(peer, &windows);
}

// Returns the peer whose window has been unused for the longest time, and for more than `looks` looks. If all windows are in use,
// returns the peer whose window was granted first if `or_first` is set, and null otherwise.
Peer* EndpointImpl::HolderToRecall(const Reception& reception, uint32_t looks, bool or_first) {
  Peer* first = nullptr;
  Peer* idlest = nullptr;
  uint32_t most = looks;
  uint32_t looked = 0;
  for (const uint32_t index : reception.holders) {
    if (looked == kMostLooked) break;
    Peer* peer = &peers_[index];
    if (peer->state != peer::State::kUp) continue;
    ++looked;
    if (first == nullptr) first = peer;
    const auto age = static_cast<uint16_t>(look_ - peer->receive.last_look());
    if (age <= most || (peer->lanes != 0 && LaneIsUsed(*peer))) continue;
    most = age;
    idlest = peer;
  }
  return idlest != nullptr || !or_first ? idlest : first;
}

// Returns whether messages came through the peer's lane since the last call. Looks do not see them.
bool EndpointImpl::LaneIsUsed(const Peer& peer) {
  InLane* lane = LanesOf(&peer).in;
  if (lane == nullptr || !lane->reader.has_value()) return false;
  const uint32_t taken = lane->reader->taken();
  return taken != std::exchange(lane->window_marked, taken);
}

// ---- Deadlines

void EndpointImpl::WatchReturn(Peer* peer, PeerWindows* windows) {
  if (!std::exchange(windows->watched, true)) windows_.recalls.push_back(peer->id());
  StartWindowTimer(LateNs(options_));
}

void EndpointImpl::StartWindowTimer(int64_t delay_ns) {
  const int64_t due_ns = clock_.NowNs() + delay_ns;
  if (window_timer_.armed() && window_timer_.deadline_ns <= due_ns) return;
  timers_.Schedule(&window_timer_, due_ns);
}

// Finds windows that are late, and disconnects peers that keep theirs too long.
void EndpointImpl::LookForReturns() {
  if (closed_) return;
  const bool heard_all = ReceiveAll();  // this process may have been stopped for long
  SettleReturns();                      // missing messages may have arrived with that
  const int64_t now_ns = clock_.NowNs();
  bool expects = false;
  size_t kept = 0;
  for (size_t i = 0; i < windows_.recalls.size(); ++i) {
    const PeerId id = windows_.recalls[i];
    Peer* peer = Find(id);
    const auto it = peer == nullptr ? windows_.of_peer.end() : windows_.of_peer.find(id.index);
    if (it == windows_.of_peer.end()) continue;
    PeerWindows& windows = it->second;
    if (!windows.recalling && !windows.returning) {
      windows.watched = false;
      continue;
    }
    windows_.recalls[kept++] = id;
    // A peer that ends frees its buffers soon.
    if (peer->state != peer::State::kUp || !heard_all) continue;
    LookForReturn(peer, &windows, now_ns);
    expects = expects || !windows.late;
  }
  windows_.recalls.resize(kept);
  if (windows_.recalls.empty() && windows_.held_returns.empty()) return;
  StartWindowTimer(expects ? LateNs(options_) : options_.dead_peer_ns / kRepeatPart);
}

void EndpointImpl::LookForReturn(Peer* peer, PeerWindows* windows, int64_t now_ns) {
  Reception& reception = ReceptionOf(*peer);
  const int64_t since_ns = windows->returning ? windows->returned_ns : windows->recalled_ns;
  if (since_ns < 0) return;  // it waits for a control slot, or its request failed
  const int64_t waited_ns = now_ns - since_ns;
  if (!windows->late && waited_ns >= LateNs(options_)) {
    windows->late = true;
    reception.Lose(peer->receive.window());
    if (reception.waiting != 0) windows_.work = WindowWork::kNow;
  }
  // A peer that has answered may have to retransmit messages after an error.
  const int64_t limit_ns = windows->returning   ? 2 * options_.dead_peer_ns
                           : reception.scarce() ? AnswerRoundNs()
                                                : kAnswerRounds * AnswerRoundNs();
  if (waited_ns >= limit_ns && (windows->returning || reception.waiting != 0)) {
    if (std::exchange(windows->late, false)) reception.Regain(peer->receive.window());
    return Fail(peer, NotReturned(*peer, windows->returning));
  }
  const int64_t period_ns = options_.dead_peer_ns / kRepeatPart << windows->recalls;
  if (windows->returning || windows->recalls == kMostRepeats ||
      now_ns - windows->said_ns < period_ns) {
    return;
  }
  ++windows->recalls;
  windows->recall_due = true;
  OweWindowWord(peer, windows);
}

}  // namespace sluice::endpoint

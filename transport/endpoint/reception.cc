// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/reception.h"

#include "transport/base/error.h"
#include "transport/endpoint/buffer_sizes.h"

namespace sluice::endpoint {
namespace {

absl::Status Exhausted(const Reception& reception, const std::string& what, const char* remedy) {
  const std::string whose =
      reception.tenant.empty() ? "" : " of tenant \"" + reception.tenant + "\"";
  return base::Error(absl::StatusCode::kResourceExhausted, "all " + what + whose + " are taken",
                     {.layer = "endpoint",
                      .operation = "connect",
                      .cause = std::to_string(reception.peers) + " peers are connected",
                      .remedy = remedy,
                      .retry_safe = true});
}

}  // namespace

peer::TenantTargets Reception::TargetsOf(bool old) const {
  if (old) return renewal.old;
  return {.data_dctn = data->dctn(),
          .control_dctn = control->dctn(),
          .data_key = data->access_key(),
          .control_key = control->access_key()};
}

void Reception::CapQueuePairs(uint32_t most) {
  max_queue_pairs = most;
  max_peers = std::min(max_peers, most);
}

absl::Status Reception::CheckPlace(uint32_t ending) const {
  // An evicted peer still has its queue pair, or a command still makes it.
  if (max_queue_pairs != 0 && peers + ending >= max_queue_pairs) {
    return Exhausted(*this, std::to_string(max_queue_pairs) + " RC queue pairs",
                     "retry later, or raise max_rc_queue_pairs");
  }
  if (!full()) return absl::OkStatus();
  return Exhausted(*this, std::to_string(max_peers) + " places for peers", "raise max_peers");
}

uint32_t Reception::WindowForOne(uint32_t most) const {
  const uint32_t window = std::min({most, std::max(left() / kShareOfRest, kLeastWindow), left()});
  return window >= std::min(kLeastWindow, most) ? window : 0;
}

// The share of the rest applies if several peers wait. A peer that waits alone gets up to half of the rest. A peer that has returned a
// window gets at least the same window again, if enough buffers are left.
uint32_t Reception::WindowForWaiter(uint32_t most, uint32_t before) const {
  const uint32_t own = std::min({most, before, left()});
  if (waiting > 1) return own != 0 ? own : WindowForOne(most);
  return std::max({std::min(most, left() / 2), own, WindowForOne(most)});
}

// Late windows are counted again, so that further recalls grow: 1, 1, 2, 4, 8 windows, until a window is freed.
uint32_t Reception::Missing(uint32_t most) const {
  const uint64_t wanted = uint64_t{waiting} * std::min(kLeastWindow, most) + lost;
  const uint64_t there = uint64_t{left()} + coming;
  return wanted <= there ? 0 : static_cast<uint32_t>(std::min<uint64_t>(wanted - there, srq_size));
}

// The buffers stay posted when the peer leaves. Without DC there are none: `data` receives all messages.
void Reception::Add(bool inbound, uint32_t window) {
  ++peers;
  // A server that has left still knows the DCT, so a second one is not alone.
  shared = shared || inbound || added++ != 0;
  Widen(window);
}

void Reception::Widen(uint32_t remote_window) {
  widest_window = std::max(widest_window, remote_window);
  if (control != nullptr) control->Want(ControlBuffers(peers, !shared, widest_window));
}

void Reception::Promise(uint32_t peer_index, uint32_t window) {
  if (window == 0) return;
  promised += window;
  data->Want(2 * uint64_t{promised} + kSpareBuffers);
  holders.push_back(peer_index);
}

void Reception::Expect(uint32_t peer_index, uint32_t window) {
  coming += window;
  std::erase(holders, peer_index);
}

void Reception::Lose(uint32_t window) {
  coming -= window;
  late += window;
  lost += window;
}

void Reception::Regain(uint32_t window) {
  late -= window;
  coming += window;
}

void Reception::Free(uint32_t peer_index, uint32_t window, Holding holding) {
  if (window == 0) return;
  promised -= window;
  lost = 0;
  switch (holding) {
    case Holding::kHeld:
      std::erase(holders, peer_index);
      break;
    case Holding::kComing:
      coming -= window;
      break;
    case Holding::kLate:
      late -= window;
      break;
  }
}

}  // namespace sluice::endpoint

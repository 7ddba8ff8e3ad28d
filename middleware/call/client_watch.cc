// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: watches of its state. A timer that is due at once reports a change: the code that changes a state may run where callbacks
// must not run, and calls pay nothing for watches.
#include <algorithm>

#include "middleware/call/client_engine.h"

namespace sluice::call {

bool ClientEngine::Watch(StateWatch* watch) {
  const bool ends = ending_ != nullptr && watch->owner == ending_;
  watch->now = ends ? ConnectionState::kClosed : state();
  if (closed_ || ends || watch->now != watch->seen) return false;
  watch->engine = this;
  watch->timer.fire = &ClientEngine::OnWatch;
  watch->timer.context = watch;
  watches_.push_back(watch);
  if (watch->deadline_ns != kNoDeadlineNs) wheel_.Schedule(&watch->timer, watch->deadline_ns);
  return true;
}

void ClientEngine::Unwatch(StateWatch* watch) {
  if (watch->engine == nullptr) return;
  watch->engine = nullptr;
  wheel_.Cancel(&watch->timer);
  std::erase(watches_, watch);
}

void ClientEngine::NoteState() {
  if (watches_.empty()) return;
  const ConnectionState now = state();
  for (StateWatch* watch : watches_) {
    if (watch->now != watch->seen || now == watch->seen) continue;
    watch->now = now;
    wheel_.Schedule(&watch->timer, now_ns_);
  }
}

void ClientEngine::OnWatch(base::Timer*, void* context) {
  auto* watch = static_cast<StateWatch*>(context);
  watch->engine->Unwatch(watch);
  watch->done(watch);
}

void ClientEngine::EndWatches(const void* owner) {
  for (;;) {
    const auto found = std::find_if(
        watches_.rbegin(), watches_.rend(),
        [owner](const StateWatch* one) { return owner == nullptr || one->owner == owner; });
    if (found == watches_.rend()) return;
    StateWatch* const watch = *found;
    Unwatch(watch);
    watch->now = ConnectionState::kClosed;
    watch->done(watch);
  }
}

}  // namespace sluice::call

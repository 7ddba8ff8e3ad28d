// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/channel_engine.h"

#include "middleware/api/stack.h"
#include "middleware/call/call_table.h"

namespace sluice {

ChannelEngine::ChannelEngine(const ChannelTraits& for_these, Stack* stack, call::ClientGroup* group)
    : traits(for_these),
      log(traits.log, stack->log(), traits.log_level),
      engine(traits.engine, stack->clock(), stack->random(), &log),
      member(group == nullptr ? nullptr : new call::GroupEndpoint(group, &engine)),
      endpoint(member) {
  if (member != nullptr) engine.Attach(member);
}

ChannelEngines::Joined ChannelEngines::Join(const std::string& address,
                                            const ChannelTraits& traits) {
  std::lock_guard lock(mutex_);
  const auto [begin, end] = engines_.equal_range(address);
  for (auto it = begin; it != end; ++it) {
    ChannelEngine& one = *it->second;
    if (one.traits != traits) continue;
    if (one.channels == call::CallTable::MaxOwners(traits.engine.max_outstanding_calls)) continue;
    return {it->second, ++one.channels};
  }
  auto made = std::make_shared<ChannelEngine>(traits, stack_, group_);
  engines_.emplace(address, made);
  return {std::move(made), 1};
}

bool ChannelEngines::Leave(const std::string& address, const ChannelEngine* engine) {
  std::lock_guard lock(mutex_);
  const auto [begin, end] = engines_.equal_range(address);
  for (auto it = begin; it != end; ++it) {
    if (it->second.get() != engine) continue;
    if (--it->second->channels != 0) return false;
    engines_.erase(it);
    break;
  }
  return true;
}

}  // namespace sluice

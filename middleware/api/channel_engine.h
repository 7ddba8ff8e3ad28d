// SPDX-License-Identifier: Apache-2.0
//
// ChannelEngine: the client engine of a channel, with its log and its endpoint.
// ChannelEngines: the engines that channels of a Runtime can share. Channels that connect to the same address with the same
// options share a ChannelEngine (docs/decisions/0077).
//
// Ownership     The channels that use a ChannelEngine own it together. ChannelEngines keeps a reference while a channel uses it. A
//               runtime owns its ChannelEngines. The stack, and the group if there is one, outlive both.
// Threads       ChannelEngines: any, several at a time. The engine: the thread that holds the lease.
// End           Leave() removes the engine from ChannelEngines when the last channel leaves. That channel closes the engine.
#ifndef SLUICE_MIDDLEWARE_API_CHANNEL_ENGINE_H_
#define SLUICE_MIDDLEWARE_API_CHANNEL_ENGINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "middleware/api/level_log.h"
#include "middleware/api/log.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/client_group.h"
#include "transport/endpoint/endpoint.h"

namespace sluice {

class Stack;

// Options that must be equal, besides the address, for channels to share an engine.
struct ChannelTraits {
  call::ClientEngineOptions engine;
  std::shared_ptr<LogSink> log;
  LogLevel log_level = LogLevel::kWarning;

  bool operator==(const ChannelTraits&) const = default;
};

struct ChannelEngine {
  // `group`: group of the runtime. nullptr: no runtime; the caller sets `endpoint`, and attaches it to the engine.
  ChannelEngine(const ChannelTraits& for_these, Stack* stack, call::ClientGroup* group);

  const ChannelTraits traits;
  LevelLog log;
  call::ClientEngine engine;
  call::GroupEndpoint* const member;  // `endpoint` in a runtime; otherwise nullptr
  std::unique_ptr<endpoint::Endpoint> endpoint;
  uint32_t channels = 1;  // number of channels that use it; written by ChannelEngines
};

class ChannelEngines {
 public:
  ChannelEngines(Stack* stack, call::ClientGroup* group) : stack_(stack), group_(group) {}

  struct Joined {
    std::shared_ptr<ChannelEngine> engine;
    uint32_t channels = 1;  // number of channels that use it now
  };
  // Adds a channel to an engine in use with this address and these traits. Creates an engine if there is none, or if it has the
  // maximum number of channels (CallTable::MaxOwners()).
  Joined Join(const std::string& address, const ChannelTraits& traits);
  // Removes a channel from its engine. Returns whether it was the last channel. Call once for each Join().
  bool Leave(const std::string& address, const ChannelEngine* engine);

 private:
  Stack* const stack_;
  call::ClientGroup* const group_;
  std::mutex mutex_;
  std::multimap<std::string, std::shared_ptr<ChannelEngine>, std::less<>>
      engines_;  // mutex_; by address
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CHANNEL_ENGINE_H_

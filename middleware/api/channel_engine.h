// SPDX-License-Identifier: Apache-2.0
//
// ChannelEngine: what makes the calls of a channel: its engine, and what the engine sees of the endpoint.
// ChannelEngines: those of a Runtime. Channels that connect to the same address with the same options share one
// (docs/decisions/0077).
//
// Ownership     The channels share a ChannelEngine; ChannelEngines refers to it while a channel uses it. A runtime owns its
//               ChannelEngines. The stack, and the group if there is one, outlive both.
// Threads       ChannelEngines: any, several at a time. The engine is the lease's.
// End           Leave(). The channel that was the last closes the engine, which no longer is in ChannelEngines.
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

// What channels that share an engine have in common, beside the address.
struct ChannelTraits {
  call::ClientEngineOptions engine;
  std::shared_ptr<LogSink> log;
  LogLevel log_level = LogLevel::kWarning;

  bool operator==(const ChannelTraits&) const = default;
};

struct ChannelEngine {
  // `group`: nullptr, and `endpoint` follows; or that of the runtime.
  ChannelEngine(const ChannelTraits& for_these, Stack* stack, call::ClientGroup* group);

  const ChannelTraits traits;
  LevelLog log;
  call::ClientEngine engine;
  call::GroupEndpoint* const member;  // `endpoint`, in a runtime; otherwise nullptr
  std::unique_ptr<endpoint::Endpoint> endpoint;
  uint32_t channels = 1;  // that use it; ChannelEngines'
};

class ChannelEngines {
 public:
  ChannelEngines(Stack* stack, call::ClientGroup* group) : stack_(stack), group_(group) {}

  struct Joined {
    std::shared_ptr<ChannelEngine> engine;
    uint32_t channels = 1;  // that use it now
  };
  // One that another channel uses already, or a new one.
  Joined Join(const std::string& address, const ChannelTraits& traits);
  // True: that was the last channel. For each Join(), once.
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

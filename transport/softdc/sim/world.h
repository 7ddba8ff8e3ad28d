// SPDX-License-Identifier: Apache-2.0
//
// World: the state that all parts of a simulation share: clock, random source, log, nodes, faults, and the
// messages in flight.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_WORLD_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_WORLD_H_

#include <cstdint>
#include <deque>

#include "transport/softdc/sim/activity.h"
#include "transport/softdc/sim/counters.h"
#include "transport/softdc/sim/event_log.h"
#include "transport/softdc/sim/event_queue.h"
#include "transport/softdc/sim/fault_state.h"
#include "transport/softdc/sim/message.h"
#include "transport/softdc/sim/node.h"
#include "transport/softdc/sim/options.h"
#include "transport/softdc/sim/random.h"

namespace sluice::softdc::sim {

// Virtual time does not start at 0, because the model uses 0 for "never".
inline constexpr int64_t kStartNs = 1'000'000'000;

struct World {
  explicit World(const Options& o)
      : options(o),
        ns_per_byte_scaled((uint64_t{8'000'000'000} << kRateShift) / o.rate_bits_per_second),
        clock(kStartNs),
        random(o.seed),
        log(o.log),
        faults(o.faults) {}

  static constexpr int kRateShift = 20;
  const Options options;
  const uint64_t ns_per_byte_scaled;  // ns per byte, multiplied by 2^kRateShift
  EventQueue clock;
  Random random;
  EventLog log;
  FaultState faults;
  MessagePool messages;
  ChannelPool channels;
  Counters counters;
  std::deque<Node> nodes;  // a deque: nodes keep their addresses
  Observer* observer = nullptr;

  int64_t now_ns() const { return clock.now_ns(); }
  void Tell(uint32_t node, Activity what) {
    if (observer != nullptr) observer->OnActivity(node, what);
  }
  void Log(LogKind kind, uint32_t node, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0) {
    log.Add(clock.now_ns(), kind, node, a, b, c);
  }
  // Returns the time that a message occupies the way out.
  int64_t WireNs(uint32_t payload_bytes, ibv_mtu mtu) const {
    const uint32_t mtu_bytes = 128u << mtu;
    const uint64_t packets = payload_bytes <= mtu_bytes ? 1 : (payload_bytes - 1) / mtu_bytes + 1;
    const uint64_t bytes = payload_bytes + packets * options.header_bytes;
    return static_cast<int64_t>(static_cast<unsigned __int128>(bytes) * ns_per_byte_scaled >>
                                kRateShift);
  }
  int64_t JitterNs() {
    return options.jitter_ns == 0
               ? 0
               : static_cast<int64_t>(random.Below(static_cast<uint64_t>(options.jitter_ns) + 1));
  }
};

inline NodeId NodeIdOf(uint32_t node) { return node + 1; }
inline uint32_t NodeOfId(NodeId id) { return id - 1; }

// Releases a message and its reference to its channel.
inline void Release(World& world, Message* message) {
  if (message->channel != nullptr) ChannelPool::Unreference(message->channel);
  world.messages.GiveBack(message);
}

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_WORLD_H_

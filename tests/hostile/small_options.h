// SPDX-License-Identifier: Apache-2.0
//
// Options of an endpoint that a trial soon drives to its limits.
#ifndef SLUICE_TESTS_HOSTILE_SMALL_OPTIONS_H_
#define SLUICE_TESTS_HOSTILE_SMALL_OPTIONS_H_

#include "tests/hostile/host.h"
#include "transport/endpoint/create.h"

namespace sluice::hostile {

struct Features {
  bool lanes = false;
  bool large = false;
  bool streams = true;  // of DCIs
};

// Without a secret.
inline endpoint::Options SmallOptions(const Features& features) {
  endpoint::Options options;
  options.max_message_bytes = 2048;
  options.srq_size = 256;
  options.credits_per_peer = 16;
  options.send_buffers = 256;
  options.max_peers = 16;
  options.dci_depth = 256;
  options.dead_peer_ns = 10 * kMs;
  options.keepalive_ns = 30 * kMs;
  options.accept_timeout_ns = 40 * kMs;
  options.lane_memory_bytes = features.lanes ? 64 << 10 : 0;
  options.lane_slots = 16;
  options.lane_after_messages = 8;
  options.max_large_bytes = features.large ? 1 << 20 : 0;
  options.large_memory_bytes = 4 << 20;
  options.use_streams = features.streams;
  options.max_half_open = 32;
  return options;
}

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_SMALL_OPTIONS_H_

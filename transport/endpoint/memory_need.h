// SPDX-License-Identifier: Apache-2.0
//
// MemoryNeed: the registered memory that an endpoint needs, computed from its options. A NIC locks this memory, and
// RLIMIT_MEMLOCK limits the sum over all endpoints (pollers) of a process.
//
// Threads       Any: a value.
#ifndef SLUICE_TRANSPORT_ENDPOINT_MEMORY_NEED_H_
#define SLUICE_TRANSPORT_ENDPOINT_MEMORY_NEED_H_

#include <cstdint>
#include <string>

namespace sluice::endpoint {

struct Options;

struct MemoryNeed {
  uint64_t at_start_bytes = 0;  // receive and send buffers: registered when the endpoint is created
  uint64_t later_bytes = 0;  // lanes and large messages: registered when first needed, at most this
};

// `rc`: of an endpoint with RC queue pairs, whose control messages take buffers for messages.
MemoryNeed NeedOf(const Options& options, bool rc);

// "33 MiB", rounded up.
std::string MebibytesOf(uint64_t bytes);

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_MEMORY_NEED_H_

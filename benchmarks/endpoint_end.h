// SPDX-License-Identifier: Apache-2.0
//
// EndpointEnd: an endpoint on the software NIC, with all that it takes.
#ifndef SLUICE_BENCHMARKS_ENDPOINT_END_H_
#define SLUICE_BENCHMARKS_ENDPOINT_END_H_

#include <memory>
#include <utility>

#include "benchmarks/dc_side.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice::benchmarks {

struct EndpointEnd {
  endpoint::Endpoint* Open(endpoint::Handler* handler, bool lanes) {
    endpoint = Make(handler, lanes);
    return endpoint.get();
  }
  // For who owns it himself.
  std::unique_ptr<endpoint::Endpoint> Make(endpoint::Handler* handler, bool lanes) {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    CheckOk(opened.status());
    device = *std::move(opened);
    endpoint::Options options;
    if (!lanes) options.lane_memory_bytes = 0;
    auto created = endpoint::CreateEndpoint(options, *device, clock, random, commands, handler);
    CheckOk(created.status());
    return *std::move(created);
  }

  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<endpoint::Endpoint> endpoint;
};

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_ENDPOINT_END_H_

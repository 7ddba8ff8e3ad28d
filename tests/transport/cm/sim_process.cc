// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/cm/sim_process.h"

#include <arpa/inet.h>

#include <algorithm>

#include "gtest/gtest.h"

namespace sluice::cm {
namespace {

constexpr ibv_ece kOffer = {.vendor_id = 0x15b3, .options = 0x30000003, .comp_mask = 0};

}  // namespace

SimProcess::SimProcess(softdc::sim::Simulation& simulation, uint32_t node,
                       const verbs::VerbsApi& api, bool ece, Options options, uint64_t seed,
                       User& user)
    : simulation_(simulation),
      node_(node),
      clock_(simulation),
      random_(seed),
      timers_(simulation.NowNs()),
      commands_(simulation, node, random_) {
  const softdc::sim::Simulation::As as(simulation, node);
  context_ = {&api, api.open_device(simulation.Device(node))};
  pd_ = {&api, api.alloc_pd(context_.get())};
  cq_ = *verbs::CreateCq(api, context_.get(), 1, nullptr);
  first_dci_ = *verbs::CreateDci(api, context_.get(), pd_.get(), cq_.get(), {.send_depth = 1});
  numbers_.emplace(api, context_.get(), pd_.get(), /*reserve=*/true);
  profiles_.emplace(api, context_.get(), pd_.get(), verbs::PathOptions(), ece, first_dci_.number());
  // It tries to map also where the device can't, as one that was not probed would.
  handles_.emplace(api, pd_.get(), /*map=*/true, clock_);
  if (ece) options.local_ece = kOffer;
  auto created =
      ConnectionManager::Create(api, options, *numbers_, commands_, clock_, timers_, random_, user);
  EXPECT_TRUE(created.ok()) << created.status();
  manager_ = std::move(*created);
}

SimProcess::~SimProcess() {
  const softdc::sim::Simulation::As as(simulation_, node_);
  commands_.Finish();
  manager_.reset();
  handles_.reset();
  profiles_.reset();
  numbers_.reset();
}

int SimProcess::Poll() {
  const softdc::sim::Simulation::As as(simulation_, node_);
  int count = manager_->ReadEvents();
  count += commands_.Drain();
  count += timers_.Advance(simulation_.NowNs());
  Wake();
  return count;
}

// The clock stands still unless something is due.
void SimProcess::Wake() {
  const int64_t now_ns = simulation_.NowNs();
  if (wake_ns_ <= now_ns) wake_ns_ = INT64_MAX;
  const int64_t next_ns = timers_.NextWakeNs();
  if (next_ns < 0 || next_ns >= wake_ns_) return;
  wake_ns_ = std::max(next_ns, now_ns + 1);
  simulation_.After(wake_ns_ - now_ns, [] {});
}

std::string SimProcess::Address(uint32_t node) {
  char text[INET_ADDRSTRLEN];
  const in_addr address = softdc::sim::Simulation::Address(node);
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

}  // namespace sluice::cm

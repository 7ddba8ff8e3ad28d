// SPDX-License-Identifier: Apache-2.0
//
// isolation [peers, default 1000] [seed, default 1] [personality]
// One process calls many; one peer in ten dies. How long calls to the others take, in the virtual time of the simulated
// fabric: with streams, with one stream a DCI, without streams, and where one errored stream stops a DCI. Or on one device only,
// a personality of transport/softdc/config/personalities.
#include "tests/simulation/isolation.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "transport/softdc/config/config.h"
#include "transport/softdc/config/personalities/personalities.h"

namespace sluice::simulation {
namespace {

double Us(int64_t ns) { return 1e-3 * static_cast<double>(ns); }

void Print(const char* phase, const Latencies& of, const Latencies& alone) {
  if (of.calls == 0) return;
  std::printf("    %-8s %7lu calls  p50 %9.1f us  p99 %9.1f us (%.2fx)  max %9.1f us\n", phase,
              of.calls, Us(of.p50_ns), Us(of.p99_ns),
              static_cast<double>(of.p99_ns) / static_cast<double>(alone.p99_ns), Us(of.max_ns));
}

void Measure(const char* name, IsolationOptions options) {
  const uint32_t dead = options.dead;
  options.dead = 0;
  const IsolationResult alone = MeasureIsolation(options);
  options.dead = dead;
  const IsolationResult with = MeasureIsolation(options);
  std::printf("%s\n", name);
  Print("alone", alone.known, alone.known);
  Print("before", with.before, alone.known);
  Print("during", with.during, alone.known);
  Print("known", with.known, alone.known);
  std::printf(
      "    dead known after %.1f ms; %lu failed requests, %lu stream resets, %lu recoveries of "
      "DCIs; "
      "%lu peers lost and %lu calls unanswered that should not\n",
      1e-3 * Us(with.known_after_ns), with.failed_requests, with.stream_resets, with.recoveries,
      with.lost_peers, with.unanswered);
  std::fflush(stdout);
}

void Main(uint32_t peers, uint64_t seed) {
  const IsolationOptions base{.seed = seed, .peers = peers, .dead = peers / 10};
  Measure("16 DCIs of 64 streams", base);
  IsolationOptions few = base;
  few.dci_count = 2;
  Measure("2 DCIs of 64 streams", few);
  IsolationOptions one = base;
  one.dials.streams.max_log_concurrent = 0;
  one.dials.streams.max_log_errored = 0;
  Measure("16 DCIs of one stream", one);
  IsolationOptions none = base;
  none.dials.streams.enabled = false;
  Measure("16 DCIs without streams", none);
  IsolationOptions fragile = base;
  fragile.dials.streams.max_log_errored = 0;
  Measure("16 DCIs of 64 streams, max_log_num_errored 0", fragile);
}

// False: there is none of that name.
bool MeasurePersonality(uint32_t peers, uint64_t seed, std::string_view name) {
  for (const softdc::Personality& personality : softdc::Personalities()) {
    if (personality.name != name) continue;
    IsolationOptions options{.seed = seed, .peers = peers, .dead = peers / 10};
    options.dials = softdc::ParseDials(personality.dials).value();
    Measure((std::string(name) + ", 16 DCIs").c_str(), options);
    options.dci_count = 2;
    Measure((std::string(name) + ", 2 DCIs").c_str(), options);
    return true;
  }
  std::fprintf(stderr, "no file transport/softdc/config/personalities/%s.textproto\n",
               std::string(name).c_str());
  return false;
}

}  // namespace
}  // namespace sluice::simulation

int main(int argc, char** argv) {
  const auto peers = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 1'000);
  const auto seed = static_cast<uint64_t>(argc > 2 ? std::atoi(argv[2]) : 1);
  if (peers < 10 || peers > 5'000) {
    std::fprintf(stderr, "usage: isolation [peers, 10 to 5000] [seed] [personality]\n");
    return 2;
  }
  if (argc > 3) return sluice::simulation::MeasurePersonality(peers, seed, argv[3]) ? 0 : 1;
  sluice::simulation::Main(peers, seed);
}

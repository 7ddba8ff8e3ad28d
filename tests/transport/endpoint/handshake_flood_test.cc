// SPDX-License-Identifier: Apache-2.0
//
// A server under a flood of hellos, in virtual time: who holds the secret gets in.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_process.h"
#include "tests/transport/endpoint/sim_endpoint.h"
#include "transport/peer/handshake.h"
#include "transport/peer/refusal.h"
#include "transport/peer/secrets.h"

namespace sluice::endpoint {
namespace handshake_flood_test {

using softdc::sim::Simulation;

constexpr char kSecret[] = "a secret for these tests";
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint32_t kHellosPerSecond = 512;  // of all together
constexpr uint32_t kFirst = 2;              // node of a flooder, and those after it

// Says hello and hello again, establishes, and proves nothing.
class Flooder : public cm::User {
 public:
  // `lives`: it holds the secret and brings cookies back; else all that it has is one hello, recorded.
  Flooder(Simulation& simulation, uint32_t node, bool lives)
      : lives_(lives),
        random_(node),
        simulation_(simulation),
        process_(simulation, node, Simulation::Verbs(), /*ece=*/false, Unpaced(), node, *this) {
    Make(std::nullopt);
  }

  void Say(const std::optional<peer::Cookie>& cookie = std::nullopt) {
    if (lives_) Make(cookie);
    const Simulation::As as(simulation_, process_.node());
    const auto id = process_.manager().Connect(SimEndpoint::AddressOf(0), SimEndpoint::kPort,
                                               simulation_.NowNs() + 60 * kSecondNs, hello_, true);
    EXPECT_TRUE(id.ok()) << id.status();
  }
  void Poll() {
    process_.Poll();
    std::vector<peer::Cookie> cookies;
    cookies.swap(cookies_);
    for (const peer::Cookie& cookie : cookies) Say(cookie);
  }

  void OnRequest(cm::ConnectionId id, std::span<const std::byte>, const cm::PathInfo&,
                 const std::string&) override {
    process_.manager().Reject(id, {});
  }
  void OnResponse(cm::ConnectionId id, std::span<const std::byte>, const cm::PathInfo&) override {
    ++let_in;
    process_.manager().Establish(id);
  }
  void OnUp(cm::ConnectionId) override {}
  void OnDown(cm::ConnectionId, const absl::Status&, std::span<const std::byte> data) override {
    const auto cookie = peer::CookieIn(data);
    if (lives_ && cookie.has_value()) cookies_.push_back(*cookie);
  }

  int let_in = 0;

 private:
  static cm::Options Unpaced() {
    cm::Options options;
    options.max_connections = 100'000;
    options.pacing.attempts_per_second = 0;
    return options;
  }
  void Make(const std::optional<peer::Cookie>& cookie) {
    peer::Greeting greeting = {.epoch = 1,
                               .secret_id = secrets_.own().id,
                               .control_dctn = 5,
                               .nonce = peer::DrawNonce(random_)};
    if (cookie.has_value()) greeting.Bring(*cookie);
    hello_ = peer::EncodeHello(greeting, secrets_.own());
  }

  const bool lives_;
  const peer::Secrets secrets_ = *peer::Secrets::FromTexts({kSecret});
  base::SeededRandom random_;
  peer::HelloMessage hello_ = {};
  std::vector<peer::Cookie> cookies_;
  Simulation& simulation_;
  cm::SimProcess process_;
};

Options FloodOptions() {
  Options options = SimEndpointOptions();
  options.secrets = [] { return std::vector<std::string>{kSecret}; };
  options.max_peers = 1024;
  options.srq_size = 256;
  return options;
}

// Two seconds and a quarter of flood. From 1.25 s on, clients at a node of their own and at that of a flooder connect four
// times.
struct Result {
  int tried = 0;   // by each of the two
  int away = 0;    // connected, from an address of its own
  int beside = 0;  // from a flooder's
  HandshakeCounts counts;
};

Result Flood(uint32_t flooders, bool live) {
  softdc::sim::Options network;
  network.nodes = kFirst + flooders;
  const std::unique_ptr<Simulation> made = Simulation::Create(network).value();
  Simulation& simulation = *made;
  Result result;
  SimEndpoint server(simulation, 0, 1, FloodOptions());
  server.Listen();
  SimEndpoint away(simulation, 1, 1, FloodOptions()), beside(simulation, kFirst, 1, FloodOptions());
  std::vector<std::unique_ptr<Flooder>> flood;
  for (uint32_t i = 0; i < flooders; ++i) {
    flood.push_back(std::make_unique<Flooder>(simulation, kFirst + i, live));
  }
  uint32_t said = 0, rounds = 0;
  const int64_t start_ns = simulation.NowNs();
  for (;;) {
    const int64_t now_ns = simulation.NowNs() - start_ns;
    if (now_ns >= 9 * kSecondNs / 4) break;
    if (now_ns >= said * (kSecondNs / kHellosPerSecond)) {
      flood[said % flooders]->Say();
      ++said;
      simulation.After(kSecondNs / kHellosPerSecond, [] {});
    }
    if (rounds < 4 && now_ns >= 5 * kSecondNs / 4 + rounds * kSecondNs / 8) {
      ++rounds;
      ++result.tried;
      for (SimEndpoint* client : {&away, &beside}) EXPECT_TRUE(client->Connect(0).ok());
    }
    for (SimEndpoint* endpoint : {&server, &away, &beside}) endpoint->Poll();
    for (auto& flooder : flood) flooder->Poll();
    // What happens within a moment is polled for at once.
    const int64_t moment_ns = simulation.NowNs() + 50'000;
    while (simulation.Step() && simulation.NowNs() < moment_ns) {
    }
  }
  result.away = static_cast<int>(away.recorder.ups.size());
  result.beside = static_cast<int>(beside.recorder.ups.size());
  for (const Recorder::Down& down : away.recorder.downs) ADD_FAILURE() << down.why;
  result.counts = server.endpoint().Handshakes();
  return result;
}

TEST(HandshakeFlood, RecordedHellosFromManySourcesShutOutNobodyWhoHoldsTheSecret) {
  const Result result = Flood(/*flooders=*/16, /*live=*/false);
  EXPECT_EQ(result.tried, 4);
  EXPECT_EQ(result.away, 4);
  EXPECT_EQ(result.beside, 4);
  EXPECT_GT(result.counts.asked_again, 200u);
  EXPECT_LE(result.counts.under_way, 256u);
  EXPECT_GT(result.counts.under_way, 200u) << "the flood was none";
}

TEST(HandshakeFlood, RecordedHellosFromOneSourceShutOutNobodyBehindIt) {
  const Result result = Flood(/*flooders=*/1, /*live=*/false);
  EXPECT_EQ(result.away, 4);
  EXPECT_EQ(result.beside, 4);
  EXPECT_GT(result.counts.asked_again, 200u);
  EXPECT_LE(result.counts.under_way, 200u) << "one source gets no more than its tokens";
}

// It holds the secret itself, and keeps all that it can get.
TEST(HandshakeFlood, HolderOfTheSecretThatNeverProvesShutsOutNobodyElsewhere) {
  const Result result = Flood(/*flooders=*/2, /*live=*/true);
  EXPECT_EQ(result.away, 4);
  EXPECT_GT(result.counts.under_way, 500u) << "the flood was none";
}

// A flooder at one source takes two places, all that there are; then a client comes from another source.
void NewcomerGetsAPlace(const Options& options) {
  softdc::sim::Options network;
  network.nodes = kFirst + 1;
  const std::unique_ptr<Simulation> simulation = Simulation::Create(network).value();
  SimEndpoint server(*simulation, 0, 1, options), client(*simulation, 1, 1, FloodOptions());
  server.Listen();
  Flooder flooder(*simulation, kFirst, /*lives=*/true);
  const auto run = [&](const std::function<bool()>& done) {
    return RunUntil(
        *simulation, {&server, &client}, [&] { return flooder.Poll(), done(); }, kSecondNs);
  };
  for (const int count : {1, 2}) {
    flooder.Say();
    ASSERT_TRUE(run([&] { return flooder.let_in == count; }));
  }
  ASSERT_EQ(server.endpoint().Handshakes().under_way, 2u);
  ASSERT_TRUE(client.Connect(0).ok());
  ASSERT_TRUE(run([&] { return !client.recorder.ups.empty() || !client.recorder.downs.empty(); }));
  for (const Recorder::Down& down : client.recorder.downs) ADD_FAILURE() << down.why;
  ASSERT_TRUE(run([&] { return server.endpoint().Handshakes().under_way == 1; }));
  EXPECT_EQ(server.endpoint().Handshakes().full, 0u);
  EXPECT_EQ(server.endpoint().Handshakes().unfinished, 1u);
}

TEST(HandshakeFlood, NewcomerGetsAPlaceOfTheSourceThatHasThemAll) {
  Options options = FloodOptions();
  options.max_half_open = 2;
  NewcomerGetsAPlace(options);
}

TEST(HandshakeFlood, NewcomerGetsAPlaceOfTheSourceThatHasAllOfTheTenant) {
  Options options = FloodOptions();
  options.max_peers = 2;
  NewcomerGetsAPlace(options);
}

}  // namespace handshake_flood_test
}  // namespace sluice::endpoint

// SPDX-License-Identifier: Apache-2.0
//
// cm_lab: the connection manager over the system's own librdmacm and libibverbs, on whatever device the kernel has.
//
// usage: cm_lab serve   --device D --address A --port P [--ece OPTIONS] [--silent]
//        cm_lab connect --device D --address A --port P [--source A] [--count N] [--at_once N] [--ece OPTIONS]
//                       [--deadline SECONDS] [--never_establish] [--keep]
// With --secret both sides go through the handshake of clients and servers without DC, which ends with the response.
// A server answers every request, and tells its counts when it is asked to end. A client makes `count` connections,
// takes each down again as soon as it is up, and tells what became of them: words of the form name=value. With --keep
// it stays connected until the other side ends them all, or it is asked to end.
// Both end when their standard input does, or by SIGTERM.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/time/time.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/address.h"
#include "transport/cm/connection_manager.h"
#include "transport/peer/handshake.h"
#include "transport/peer/refusal.h"
#include "transport/peer/secrets.h"
#include "transport/poller/commands.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/verbs_api.h"

ABSL_FLAG(std::string, device, "", "the RDMA device whose QP numbers are used");
ABSL_FLAG(std::string, address, "", "where the server listens");
ABSL_FLAG(uint16_t, port, 0, "where the server listens");
ABSL_FLAG(std::string, source, "", "the address that connections leave from");
ABSL_FLAG(uint32_t, count, 1, "connections to make");
ABSL_FLAG(uint32_t, at_once, 100, "connections and attempts that there are at one time");
ABSL_FLAG(uint32_t, ece, 0, "ECE options that this side offers; 0: none");
ABSL_FLAG(absl::Duration, deadline, absl::Seconds(60), "of each attempt");
ABSL_FLAG(bool, silent, false, "server: requests are left unanswered");
ABSL_FLAG(bool, never_establish, false, "client: the server's answer is not taken up");
ABSL_FLAG(bool, keep, false, "client: connections stay up");
ABSL_FLAG(std::string, secret, "",
          "what both sides prove to each other; empty: there is no handshake");
ABSL_FLAG(bool, drain, false, "wait until every number is free again");

namespace sluice::cm {
namespace {

constexpr uint32_t kVendor = 0x15b3;
volatile sig_atomic_t g_over = 0;

// Both ends of the lab's wire are in one machine, whose kernel would otherwise not use the wire.
sockaddr_storage g_source;
int ResolveFromSource(rdma_cm_id* id, sockaddr*, sockaddr* to, int timeout_ms) {
  return verbs::NativeVerbs().cm_resolve_addr(id, reinterpret_cast<sockaddr*>(&g_source), to,
                                              timeout_ms);
}

uint64_t g_reserved = 0;
int CountReserved(ibv_context* context, uint32_t* qpn) {
  const int result = verbs::NativeVerbs().dv_reserved_qpn_alloc(context, qpn);
  if (result == 0) ++g_reserved;
  return result;
}

verbs::VerbsApi MakeTable() {
  verbs::VerbsApi table = verbs::NativeVerbs();
  table.dv_reserved_qpn_alloc = &CountReserved;
  const std::string source = absl::GetFlag(FLAGS_source);
  if (source.empty()) return table;
  const auto addresses = Resolve(source, 0, /*passive=*/false);
  if (!addresses.ok()) {
    std::fprintf(stderr, "cm_lab: %s\n", addresses.status().ToString().c_str());
    std::exit(2);
  }
  g_source = addresses->front();
  table.cm_resolve_addr = &ResolveFromSource;
  return table;
}

verbs::Context OpenNamed(const verbs::VerbsApi& api, const std::string& name) {
  int count = 0;
  ibv_device** const list = api.get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (name == list[i]->name) {
      auto context = verbs::OpenContext(api, list[i]);
      if (context.ok()) return std::move(*context);
      std::fprintf(stderr, "cm_lab: %s\n", context.status().ToString().c_str());
    }
  }
  std::fprintf(stderr, "cm_lab: no device %s that opens, among %d\n", name.c_str(), count);
  std::exit(2);
}

// What both sides have, and how it goes round.
struct Side : User {
  Side() {
    auto opened = verbs::AllocPd(api, context.get());
    pd = std::move(opened).value();
    numbers = std::make_unique<QpnPool>(api, context.get(), pd.get(), /*reserve=*/true,
                                        /*max_dummies=*/4096);
    options.max_connections = 4096;
    options.device = absl::GetFlag(FLAGS_device);
    options.pacing.attempts_per_second = 0;  // the lab asks one server as fast as it can
    if (ece != 0) options.local_ece = {.vendor_id = kVendor, .options = ece, .comp_mask = 0};
    manager =
        ConnectionManager::Create(api, options, *numbers, commands, clock, timers, random, *this)
            .value();
  }
  ~Side() override { commands.Finish(); }

  // False: it is time to end.
  bool Turn() {
    pollfd fds[] = {{.fd = manager->fd(), .events = POLLIN, .revents = 0},
                    {.fd = commands.fd(), .events = POLLIN, .revents = 0},
                    {.fd = STDIN_FILENO, .events = 0, .revents = 0}};
    poll(fds, 3, /*timeout=*/5);
    manager->ReadEvents();
    commands.Drain();
    timers.Advance(clock.NowNs());
    return g_over == 0 && (fds[2].revents & POLLHUP) == 0;
  }

  void TellCounts() const {
    const Metrics m = manager->metrics();
    const auto print = [](const char* name, uint64_t value) {
      std::printf(" %s=%llu", name, static_cast<unsigned long long>(value));
    };
    print("live", m.live);
    print("quarantined", m.quarantined);
    print("exhausted", m.exhausted);
    print("tries", m.tries);
    print("retries", m.retries);
    print("stale", m.stale_rejects);
    print("timeouts", m.timeouts);
    print("reaped", m.half_open_reaped);
    print("unanswered_closes", m.unanswered_closes);
    print("reserved", g_reserved);
    print("numbers", numbers->in_use());
    std::printf(" ece=0x%x:0x%x\n", last_ece.vendor_id, last_ece.options);
    std::fflush(stdout);
  }

  const uint32_t ece = absl::GetFlag(FLAGS_ece);
  const verbs::VerbsApi api = MakeTable();
  verbs::Context context = OpenNamed(api, absl::GetFlag(FLAGS_device));
  verbs::Pd pd;
  Options options;
  base::RealClock clock;
  base::TimerWheel timers{clock.NowNs()};
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<QpnPool> numbers;
  std::unique_ptr<ConnectionManager> manager;
  ibv_ece last_ece = {};  // what the other side said

  // ---- The handshake.
  bool shakes() const { return secrets.demanded(); }
  peer::Greeting Greet() {
    return {.epoch = epoch, .secret_id = secrets.own().id, .nonce = peer::DrawNonce(random)};
  }
  const peer::Secrets secrets =
      absl::GetFlag(FLAGS_secret).empty()
          ? peer::Secrets()
          : peer::Secrets::FromTexts({absl::GetFlag(FLAGS_secret)}).value();
  const uint64_t epoch = random.Next64();
  uint32_t proven = 0, refused = 0;  // others
};

struct Server : Side {
  void OnRequest(ConnectionId id, std::span<const std::byte> data, const PathInfo& path,
                 const std::string&) override {
    ++requests;
    last_ece = path.remote_ece;
    if (absl::GetFlag(FLAGS_silent)) return;
    const ibv_ece own = ece == 0 ? ibv_ece{} : options.local_ece;
    if (!shakes()) return manager->Accept(id, {}, own);
    const auto hello = peer::DecodeHello(data);
    const peer::Secret* secret = hello.ok() ? secrets.Find(hello->secret_id) : nullptr;
    if (secret == nullptr || !peer::Proven(data, *secret)) {
      ++refused;
      return manager->Reject(id, peer::EncodeRefusal(peer::RefusalCode::kUnauthenticated,
                                                     "not the secret of this lab"));
    }
    ++proven;
    peer::SessionKeys unused;
    manager->Accept(id, peer::EncodeWelcome(Greet(), {}, data, *secret, &unused), own);
  }
  void OnResponse(ConnectionId, std::span<const std::byte>, const PathInfo&) override {}
  void OnUp(ConnectionId) override { ++up; }
  void OnDown(ConnectionId, const absl::Status&, std::span<const std::byte>) override { ++down; }

  int Run() {
    const auto port = manager->Listen(absl::GetFlag(FLAGS_address), absl::GetFlag(FLAGS_port));
    if (!port.ok()) {
      std::fprintf(stderr, "cm_lab: %s\n", port.status().ToString().c_str());
      return 2;
    }
    std::printf("listening\n");
    std::fflush(stdout);
    while (Turn()) {
    }
    std::printf("server: requests=%u up=%u down=%u proven=%u refused=%u", requests, up, down,
                proven, refused);
    TellCounts();
    return 0;
  }

  uint32_t requests = 0, up = 0, down = 0;
};

struct Client : Side {
  void OnRequest(ConnectionId id, std::span<const std::byte>, const PathInfo&,
                 const std::string&) override {
    manager->Reject(id, {});
  }
  void OnResponse(ConnectionId id, std::span<const std::byte> data, const PathInfo& path) override {
    last_ece = path.remote_ece;
    if (shakes()) {
      peer::SessionKeys unused;
      (peer::DecodeWelcome(data, hello, secrets.own(), &unused).ok() ? proven : refused) += 1;
    }
    if (!absl::GetFlag(FLAGS_never_establish)) manager->Establish(id);
  }
  void OnUp(ConnectionId id) override {
    ++up;
    if (absl::GetFlag(FLAGS_keep)) return;
    manager->Close(id);
    ++over;
  }
  void OnDown(ConnectionId, const absl::Status& cm_why,
              std::span<const std::byte> refusal) override {
    const absl::Status why =
        refusal.empty() ? cm_why
                        : peer::DecodeRefusal(refusal, absl::GetFlag(FLAGS_address), cm_why);
    ++over;
    ++down[absl::StatusCodeToString(why.code())];
    last_why = why;
    if (clock.NowNs() > deadline_ns + absl::ToInt64Nanoseconds(absl::Seconds(1))) ++late;
  }

  int Run() {
    const uint32_t count = absl::GetFlag(FLAGS_count);
    const uint32_t at_once = shakes() ? 1 : absl::GetFlag(FLAGS_at_once);
    const int64_t patience_ns = absl::ToInt64Nanoseconds(absl::GetFlag(FLAGS_deadline));
    bool told = false;
    while (over < count && Turn()) {
      for (; started < count && started - over < at_once; ++started) {
        deadline_ns = clock.NowNs() + patience_ns;
        // One at a time with a handshake: the hello is part of what the answer is checked against.
        hello = peer::EncodeHello(Greet(), secrets.own());
        const auto id = manager->Connect(
            absl::GetFlag(FLAGS_address), absl::GetFlag(FLAGS_port), deadline_ns,
            shakes() ? std::span<const std::byte>(hello) : std::span<const std::byte>());
        if (!id.ok()) {
          std::fprintf(stderr, "cm_lab: %s\n", id.status().ToString().c_str());
          return 2;
        }
      }
      if (up == count && !told) {
        std::printf("all up\n");
        std::fflush(stdout);
        told = true;
      }
    }
    while (absl::GetFlag(FLAGS_drain) && numbers->in_use() != 0 && Turn()) {
    }
    std::printf("client: up=%u", up);
    for (const auto& [code, times] : down) std::printf(" down_%s=%u", code.c_str(), times);
    std::printf(" late=%u proven=%u refused=%u", late, proven, refused);
    TellCounts();
    if (!last_why.ok()) std::printf("last: %s\n", std::string(last_why.message()).c_str());
    return 0;
  }

  uint32_t started = 0, over = 0, up = 0, late = 0;
  int64_t deadline_ns = 0;
  peer::HelloMessage hello = {};
  std::map<std::string, uint32_t> down;  // by status code
  absl::Status last_why;
};

int Main(const std::string& word) {
  signal(SIGTERM, [](int) { g_over = 1; });
  signal(SIGPIPE, SIG_IGN);
  if (word == "serve") return std::make_unique<Server>()->Run();
  if (word == "connect") return std::make_unique<Client>()->Run();
  std::fprintf(stderr, "cm_lab: serve or connect, not '%s'\n", word.c_str());
  return 2;
}

}  // namespace
}  // namespace sluice::cm

int main(int argc, char** argv) {
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  return sluice::cm::Main(words.size() == 2 ? words[1] : "");
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/run.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/nodes/client.h"
#include "tests/nodes/disturber.h"
#include "tests/nodes/server.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::nodes {
namespace {

using hostile::kMs;
using hostile::kUs;
using softdc::sim::Activity;
using softdc::sim::Simulation;

// Calls end by their deadlines; connections after those that nobody answers.
constexpr int64_t kRestNs = 6'000 * kMs;
constexpr int64_t kGoneNs = 1'000 * kMs;
// Queue pair numbers of connections that are over come back after this time at the latest.
constexpr int64_t kNumbersNs = 120'000 * kMs;

// The place of a process, which may have several lives.
struct Place {
  uint32_t node = 0;
  std::unique_ptr<Process> process;  // nullptr: between two lives
  uint64_t lives = 0;
  bool pending = false;  // the next life begins when nothing is left of the last one
};

class Run final : private softdc::sim::Observer, public Stage {
 public:
  explicit Run(const Plan& plan);
  ~Run() override;

  Result Go();

 private:
  void OnActivity(uint32_t node, Activity what) override {
    for (Place& place : places_) {
      if (place.process != nullptr && place.node == node) place.process->OnActivity(what);
    }
    for (auto& one : remains_) {
      if (one->node() == node) one->OnActivity(what);
    }
  }

  uint32_t servers() const { return plan_.servers * plan_.pollers; }
  bool IsServer(size_t place) const { return place < servers(); }
  Client* ClientAt(size_t place) { return static_cast<Client*>(places_[place].process.get()); }
  Server* ServerAt(size_t place) { return static_cast<Server*>(places_[place].process.get()); }
  void StartServer(uint32_t server);
  void WakePollers(uint32_t first);
  void StartClient(size_t place);
  void Begin(const Happening& happening);
  // Its life ends as programs end; the next one begins when nothing of it is left.
  void CloseServer(uint32_t server);
  void CloseClient(size_t place);
  void Replace(size_t place, std::function<void()> then);
  // Stage
  Simulation& simulation() override { return *simulation_; }
  void Kill(uint32_t node) override;
  void Restart(uint32_t node) override;
  void Rest();
  void CheckRest();
  bool Until(const std::function<bool()>& done, int64_t limit_ns) {
    return simulation_->RunUntil([&] { return ledger_.broken() || done(); }, limit_ns) && done();
  }

  const Plan plan_;
  Ledger ledger_;
  std::unique_ptr<Simulation> simulation_;
  std::vector<Place> places_;  // servers' pollers, clients, and a client that comes at the end
  std::vector<std::unique_ptr<Process>> remains_;
  std::unique_ptr<Disturber> disturber_;
  uint32_t starting_ = 0;  // lives that are about to begin
  bool working_ = true;
  uint64_t happened_ = 0;
  uint64_t calls_ = 0;  // of lives that are over
  uint64_t ok_ = 0;
};

Run::Run(const Plan& plan) : plan_(plan), simulation_(Simulation::Create(plan.network).value()) {
  simulation_->SetObserver(this);
  disturber_ = std::make_unique<Disturber>(this);
  for (uint32_t i = 0; i < servers(); ++i) places_.push_back({i / plan_.pollers, nullptr, 0});
  for (uint32_t i = 0; i <= plan_.clients; ++i) places_.push_back({plan_.servers + i, nullptr, 0});
}

Run::~Run() {
  simulation_->SetObserver(nullptr);
  places_.clear();
  remains_.clear();
}

void Run::StartServer(uint32_t server) {
  const auto desk = plan_.pollers > 1 ? endpoint::MakeRequestDesk() : nullptr;
  const uint32_t first = server * plan_.pollers;
  for (uint32_t i = first; i < first + plan_.pollers; ++i) {
    Place& place = places_[i];
    const uint64_t seed = plan_.seed * 100 + ++place.lives * 10 + i;
    place.process = std::make_unique<Server>(*simulation_, place.node, seed, plan_, &ledger_, desk);
    place.process->set_loop(plan_.loops[i]);
    if (plan_.pollers > 1) place.process->set_on_work([this, first] { WakePollers(first); });
    if (!working_) place.process->BeQuiet();
  }
  if (!ledger_.broken()) ServerAt(first)->Listen();
  for (uint32_t i = first; i < first + plan_.pollers; ++i) {
    places_[i].process->OnActivity(Activity::kEvent);
  }
}

// One of them hands requests to the others, whose descriptors are readable then.
void Run::WakePollers(uint32_t first) {
  for (uint32_t i = first; i < first + plan_.pollers; ++i) {
    if (places_[i].process != nullptr) places_[i].process->OnActivity(Activity::kEvent);
  }
}

void Run::StartClient(size_t at) {
  Place& place = places_[at];
  const uint64_t seed = plan_.seed * 100 + ++place.lives * 10 + at;
  auto client = std::make_unique<Client>(*simulation_, place.node, seed, plan_, &ledger_);
  client->set_loop(plan_.loops[at]);
  if (!working_) client->BeQuiet();
  Client* its = client.get();
  place.process = std::move(client);
  if (working_) its->Start();
  its->OnActivity(Activity::kEvent);
}

void Run::Begin(const Happening& happening) {
  ++happened_;
  switch (happening.what) {
    case Happening::What::kFault:
      return disturber_->Begin(happening.fault);
    case Happening::What::kCloseClient:
      return CloseClient(happening.which);
    case Happening::What::kCloseServer:
      return CloseServer(happening.which);
    case Happening::What::kDrain: {
      const uint32_t first = happening.which * plan_.pollers;
      for (uint32_t i = first; i < first + plan_.pollers; ++i) {
        if (places_[i].process != nullptr) ServerAt(i)->StartDrain();
      }
      ++starting_;
      simulation_->After(5 * kMs, [this, which = happening.which] {
        --starting_;
        CloseServer(which);
      });
      return;
    }
    case Happening::What::kServers:
      if (places_[happening.which].process != nullptr) ClientAt(happening.which)->ChangeServers();
  }
}

// What it was says its goodbyes first.
void Run::Replace(size_t at, std::function<void()> then) {
  Place& place = places_[at];
  Process* const old = place.process.get();
  if (!IsServer(at)) {
    calls_ += ClientAt(at)->ended();
    ok_ += ClientAt(at)->ok();
  }
  remains_.push_back(std::move(place.process));
  place.pending = true;
  ++starting_;
  const int64_t end_ns = simulation_->NowNs() + 200 * kMs;
  const auto look = [this, at, old, then, end_ns](const auto& self) -> void {
    // A host that is down starts nothing.
    if (disturber_->IsDown(old->node()) || (!old->gone() && simulation_->NowNs() < end_ns)) {
      simulation_->After(kMs, [self] { self(self); });
      return;
    }
    std::erase_if(remains_, [old](const auto& one) { return one.get() == old; });
    --starting_;
    places_[at].pending = false;
    then();
  };
  simulation_->After(kMs, [look] { look(look); });
}

void Run::CloseClient(size_t at) {
  if (places_[at].process == nullptr || disturber_->IsDown(places_[at].node)) return;
  places_[at].process->Close();
  Replace(at, [this, at] { StartClient(at); });
}

void Run::CloseServer(uint32_t server) {
  const uint32_t first = server * plan_.pollers;
  if (places_[first].process == nullptr || disturber_->IsDown(places_[first].node)) return;
  auto left = std::make_shared<uint32_t>(plan_.pollers);
  for (uint32_t i = first; i < first + plan_.pollers; ++i) {
    places_[i].process->Close();
    Replace(i, [this, left, server] {
      if (--*left == 0) StartServer(server);
    });
  }
}

void Run::Kill(uint32_t node) {
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.node != node || place.process == nullptr) continue;
    place.process->Die();
    if (!IsServer(i)) {
      calls_ += ClientAt(i)->ended();
      ok_ += ClientAt(i)->ok();
    }
    remains_.push_back(std::move(place.process));
  }
}

void Run::Restart(uint32_t node) {
  ++starting_;
  simulation_->After(2 * plan_.endpoint.dead_peer_ns + kMs, [this, node] {
    --starting_;
    std::erase_if(remains_, [node](const auto& one) {
      if (one->node() != node || !one->dead()) return false;
      one->Bury();
      return true;
    });
    for (size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      if (place.node != node || place.process != nullptr || place.pending) continue;
      if (IsServer(i)) return StartServer(node);
      StartClient(i);
    }
  });
}

void Run::Rest() {
  working_ = false;
  if (!Until([&] { return starting_ == 0 && disturber_->idle(); }, kRestNs)) {
    if (!ledger_.broken()) ledger_.Break("faults do not end");
    return;
  }
  disturber_->Stop();
  const size_t late = places_.size() - 1;
  for (size_t i = 0; i < late; ++i) {
    places_[i].process->BeQuiet();
    if (!IsServer(i)) ClientAt(i)->Finish();
  }
  const auto idle = [&] {
    for (size_t i = servers(); i < late; ++i) {
      if (!ClientAt(i)->idle()) return false;
    }
    return true;
  };
  if (!Until(idle, kRestNs) && !ledger_.broken()) ledger_.Break("calls do not end");
}

void Run::CheckRest() {
  const size_t late = places_.size() - 1;
  for (size_t i = servers(); i < late; ++i) ClientAt(i)->Leave();
  const auto nothing_left = [&] {
    for (size_t i = 0; i < late; ++i) {
      if (!(IsServer(i) ? ServerAt(i)->Left() : ClientAt(i)->Left()).empty()) return false;
    }
    return true;
  };
  if (!Until(nothing_left, kGoneNs) && !ledger_.broken()) {
    for (size_t i = 0; i < late; ++i) {
      const std::string left = IsServer(i) ? ServerAt(i)->Left() : ClientAt(i)->Left();
      if (!left.empty()) ledger_.Break(absl::StrCat("place ", i, " keeps ", left));
    }
  }
  if (ledger_.broken()) return;
  // Whoever comes now finds everything that there was in the beginning.
  StartClient(late);
  if (!Until([&] { return ClientAt(late)->up(); }, kNumbersNs) && !ledger_.broken()) {
    return ledger_.Break(absl::StrCat("a client that comes at the end is not let in: ",
                                      ClientAt(late)->LastError()));
  }
  const uint32_t expected = std::min(plan_.endpoint.credits_per_peer, plan_.endpoint.send_buffers);
  uint32_t got = 0;
  // Signs of life take one for a while.
  for (int i = 0; i < 20 && got != expected; ++i) {
    simulation_->RunFor(kMs);
    got = ClientAt(late)->Credits();
  }
  if (got != expected) {
    ledger_.Break(
        absl::StrCat("a client that comes at the end has ", got, " credits, not ", expected));
  }
  ClientAt(late)->Leave();
  simulation_->RunFor(20 * kMs);
}

Result Run::Go() {
  for (uint32_t i = 0; i < plan_.servers; ++i) StartServer(i);
  for (size_t i = servers(); i + 1 < places_.size(); ++i) StartClient(i);
  for (const Happening& one : plan_.happenings) {
    simulation_->After(one.at_ns, [this, &one] { Begin(one); });
  }
  Until([&] { return false; }, plan_.work_ns);
  if (!ledger_.broken()) Rest();
  if (!ledger_.broken()) CheckRest();
  Result result;
  for (size_t i = 0; i < places_.size(); ++i) {
    Process* const process = places_[i].process.get();
    if (process == nullptr) continue;
    if (process->sleepless() != 0) ledger_.Break(absl::StrCat("place ", i, " never slept"));
    if (!IsServer(i)) {
      calls_ += ClientAt(i)->ended();
      ok_ += ClientAt(i)->ok();
    }
    process->Close();
  }
  simulation_->RunFor(50 * kMs);
  result.violations = ledger_.report().violations();
  result.calls = calls_;
  result.ok = ok_;
  result.runs = ledger_.runs();
  result.happened = happened_;
  result.virtual_ns = simulation_->NowNs();
  result.digest = simulation_->log().digest();
  return result;
}

}  // namespace

Result RunPlan(const Plan& plan) { return Run(plan).Go(); }

std::string ToString(const Plan& plan, const Result& result) {
  std::string text = absl::StrCat("seed ", plan.seed, ": ", result.calls, " calls, ", result.ok,
                                  " ok, ", result.runs, " runs, ", result.happened, " happenings, ",
                                  result.virtual_ns / kMs, " ms; digest ",
                                  absl::Hex(result.digest, absl::kZeroPad16), "\n");
  for (const std::string& one : result.violations) absl::StrAppend(&text, "  FAILED: ", one, "\n");
  return text;
}

}  // namespace sluice::nodes

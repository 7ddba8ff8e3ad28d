// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/client.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::nodes {
namespace {

using hostile::Host;
using hostile::kMs;
using hostile::kUs;

constexpr size_t kMostOutstanding = 64;
constexpr uint32_t kMostNested = 3;
// After its deadline a call may take this long to end: passes of a loop that spins.
constexpr int64_t kGraceNs = 3 * kMs;
// Engines read the clock once a pass; a deadline counts from then.
constexpr int64_t kStaleNs = 500 * kUs;

call::ClientEngineOptions EngineOptions(const Plan& plan) {
  call::ClientEngineOptions options;
  options.max_outstanding_calls = 128;
  options.max_message_bytes = plan.endpoint.max_message_bytes;
  options.max_large_bytes = plan.endpoint.max_large_bytes;
  options.connect_timeout_ns = 200 * kMs;
  options.backoff_min_ns = kMs;
  options.backoff_max_ns = 4 * kMs;
  options.max_reconnect_attempts = 1'000'000;
  options.trace_records = 64;
  options.balancing = static_cast<call::Balancing>(plan.seed % 3);
  options.retry.max_attempts = plan.attempts;
  options.retry.pause_min_ns = 50 * kUs;
  options.retry.pause_max_ns = kMs;
  options.retry.budget = 1'000;
  return options;
}

endpoint::Options EndpointOptions(const Plan& plan, uint32_t node) {
  endpoint::Options options = plan.endpoint;
  const char* secret = plan.tenants() && node % 2 == 1 ? kOtherSecret : kSecret;
  options.tenants.clear();
  options.secrets = [secret] { return std::vector<std::string>{secret}; };
  options.credits_per_peer = plan.client_credits;
  options.max_peers = 8;
  return options;
}

}  // namespace

Client::Client(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Plan& plan,
               Ledger* ledger)
    : Process(simulation, node, seed, plan, ledger),
      engine_(std::make_unique<call::ClientEngine>(EngineOptions(plan), &clock_, &random_)) {
  Dials();
  Open(EndpointOptions(plan, node), engine_->handler());
  const As as(simulation, node);
  engine_->Attach(&valve_);
  engine_->SetServers(Servers());
}

Client::~Client() { Close(); }

std::vector<call::ServerAddress> Client::Servers() const {
  std::vector<call::ServerAddress> all;
  for (uint32_t i = 0; i < plan_.servers; ++i) all.push_back({AddressOf(i), hostile::kPort});
  return all;
}

void Client::Start() {
  calling_ = true;
  After(1 + static_cast<int64_t>(dice_.Below(plan_.habits.period_ns)), [this] { Tick(); });
}

void Client::Tick() {
  if (!calling_ || closed()) return;
  After(plan_.habits.period_ns, [this] { Tick(); });
  if (calls_.size() < kMostOutstanding) Begin();
  engine_->Flush();
  Acted();
}

void Client::Begin() {
  const uint64_t serial = ledger_->NextSerial();
  Outgoing* call = (calls_[serial] = std::make_unique<Outgoing>(this, serial)).get();
  const absl::Status started = call->Start();
  if (!started.ok()) {
    if (!call->Explains(started)) {
      ledger_->Break(absl::StrCat("call ", serial, " was not started: ", started.ToString()));
    }
    calls_.erase(serial);
    return;
  }
  After(call->deadline_ns() + kGraceNs - now_ns(), [this, serial] {
    if (calls_.contains(serial)) {
      ledger_->Break(absl::StrCat("call ", serial, " has not ended at its deadline"));
    }
  });
  if (call->cancelled()) {
    After(kGraceNs, [this, serial] {
      if (calls_.contains(serial)) {
        ledger_->Break(absl::StrCat("call ", serial, ", cancelled before its start, goes on"));
      }
    });
  }
  if (!One(plan_.habits.cancel_ppm)) return;
  After(static_cast<int64_t>(dice_.Below(200 * kUs)), [this, serial] {
    if (closed()) return;
    Cancel(serial);
    engine_->Flush();
    Acted();
  });
}

void Client::Cancel(uint64_t serial) {
  const auto found = calls_.find(serial);
  if (found != calls_.end()) found->second->Cancel();
}

void Client::OnEnd(Outgoing* call, const absl::Status& status) {
  const uint64_t serial = call->serial();
  ++ended_;
  const auto found = calls_.find(serial);
  if (found == calls_.end()) return ledger_->Break(absl::StrCat("call ", serial, " ended twice"));
  if (call->method().streams != call::Streams::kNobody) call->OnReadable();
  if (!dead()) {
    if (!call->Explains(status)) {
      ledger_->Break(absl::StrCat("call ", serial, " ", call->method().full_name,
                                  " ended with: ", status.ToString()));
    }
    if (absl::IsDeadlineExceeded(status) && now_ns() < call->deadline_ns() - kStaleNs) {
      ledger_->Break(absl::StrCat("call ", serial, " ended ", call->deadline_ns() - now_ns(),
                                  " ns before its deadline: ", status.ToString()));
    }
    if (status.ok()) {
      ++ok_;
      call->Judge();
    }
  }
  calls_.erase(found);
  if (!closing_ && calling_ && depth_ < kMostNested && One(plan_.habits.nested_ppm)) {
    ++depth_;
    Nest();
    --depth_;
  }
}

// As programs do in callbacks.
void Client::Nest() {
  switch (dice_.Below(4)) {
    case 0:
    case 1:
      return Begin();
    case 2:
      if (!calls_.empty()) Cancel(calls_.begin()->first);
      return;
    default:
      if (!plan_.disruptive) return;
      engine_->SetServers(dice_.Below(2) == 0 ? std::vector<call::ServerAddress>{} : Servers());
      After(200 * kUs, [this] {
        if (closed() || leaving_) return;
        engine_->SetServers(Servers());
        Acted();
      });
  }
}

void Client::ChangeServers() {
  if (closed() || leaving_) return;
  const As as(simulation_, node_);
  std::vector<call::ServerAddress> some = Servers();
  if (dice_.Below(2) == 0) some.erase(some.begin());
  engine_->SetServers(some);
  Acted();
  After(500 * kUs, [this] {
    if (closed() || leaving_) return;
    engine_->SetServers(Servers());
    Acted();
  });
}

void Client::Leave() {
  if (closed()) return;
  const As as(simulation_, node_);
  leaving_ = true;
  engine_->SetServers({});
  Acted();
}

void Client::EndEngine() {
  closing_ = true;
  calling_ = false;
  engine_->Close();
  if (!calls_.empty()) {
    ledger_->Break(absl::StrCat(calls_.size(), " calls have not ended at a closed client"));
  }
  calls_.clear();
  engine_.reset();
}

std::string Client::Left() const {
  if (closed()) return "";
  const endpoint::ConnectionCounts counts = valve_.Connections();
  // A handle stays while a request to its peer has not asked for a completion.
  const uint32_t tails = plan_.endpoint.dci_count + 1;
  if (engine_->outstanding() == 0 && counts.numbers_live == 0 && counts.handles_in_use <= tails &&
      engine_->session_counters().lent == 0) {
    return "";
  }
  return absl::StrCat(engine_->outstanding(), " calls, ", counts.numbers_live, " numbers, ",
                      counts.handles_in_use, " handles, ", engine_->session_counters().lent,
                      " lent");
}

uint32_t Client::Credits() {
  const As as(simulation_, node_);
  const std::vector<endpoint::PeerId> up = valve_.up();
  if (up.empty()) return 0;
  std::vector<endpoint::SendBuffer> all;
  for (auto one = valve_.Reserve(up[0], 64); one.ok(); one = valve_.Reserve(up[0], 64)) {
    all.push_back(*one);
  }
  for (const endpoint::SendBuffer& one : all) valve_.Cancel(up[0], one);
  return static_cast<uint32_t>(all.size());
}

}  // namespace sluice::nodes

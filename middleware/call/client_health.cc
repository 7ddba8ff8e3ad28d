// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: health checks of its servers. The engine sends a check (proto/health.proto) on the connection that it checks: when the
// connection comes up, and then periodically. A result only moves calls from one connected server to another.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"
#include "proto/health.pb.h"

namespace sluice::call {
namespace {

constexpr Method kCheck("/sluice.health.v1.Health/Check");

}  // namespace

struct HealthAsk {
  ClientEngine* engine = nullptr;
  Connection* connection = nullptr;
  base::Timer timer;
  bool under_way = false;
  health::v1::HealthCheckRequest request;
  health::v1::HealthCheckResponse reply;
};

Connection::Connection(ClientEngine* the_engine, ServerAddress the_address, uint32_t limit)
    : engine(the_engine),
      address(std::move(the_address)),
      server(absl::StrCat(address.host, ":", address.port)),
      limit_bytes(limit) {}

Connection::~Connection() = default;

// Starts the health checks of a server that came up.
void ClientEngine::WatchHealth(Connection* connection) {
  if (options_.health_period_ns == 0) return;
  if (connection->ask == nullptr) {
    connection->ask = std::make_unique<HealthAsk>();
    connection->ask->engine = this;
    connection->ask->connection = connection;
    connection->ask->request.set_service(options_.health_service);
    connection->ask->timer.fire = &ClientEngine::OnHealthTime;
    connection->ask->timer.context = connection;
  }
  connection->health = Health::kUnknown;
  Reconsider();
  AskHealth(connection);
}

// Stops the health checks of a server that is not up or was removed. A check in flight ends by itself.
void ClientEngine::ForgetHealth(Connection* connection) {
  if (connection->ask == nullptr) return;
  wheel_.Cancel(&connection->ask->timer);
  connection->health = Health::kUnknown;
  Reconsider();
}

void ClientEngine::OnHealthTime(base::Timer*, void* context) {
  auto* connection = static_cast<Connection*>(context);
  connection->engine->AskHealth(connection);
}

void ClientEngine::AskHealth(Connection* connection) {
  HealthAsk* const ask = connection->ask.get();
  if (connection->state != ConnectionState::kUp || ask->under_way) return;
  if (now_is_stale_) RefreshNow();
  const auto size = static_cast<uint32_t>(ask->request.ByteSizeLong());
  if (table_.active() < table_.limit()) {
    if (const auto buffer = sessions_.Reserve(connection->peer, size); buffer.ok()) {
      CallSpec spec;
      spec.method = &kCheck;
      spec.request = &ask->request;
      spec.reply = &ask->reply;
      spec.done = &ClientEngine::OnHealth;
      spec.argument = ask;
      ask->under_way = true;
      Call* const call = table_.StartSent(spec, now_ns_ + options_.health_period_ns);
      Begin(call, nullptr);
      return Send(call, connection, *buffer, size);
    }
  }
  // No free place or no credit: the last result stays.
  wheel_.Schedule(&ask->timer, now_ns_ + Jittered(options_.health_period_ns));
}

void ClientEngine::OnHealth(void* argument, const absl::Status& status) {
  auto* const ask = static_cast<HealthAsk*>(argument);
  Connection* const connection = ask->connection;
  ClientEngine* const engine = ask->engine;
  ask->under_way = false;
  // CountOk() ran directly before. A check that succeeds adds nothing to the retry budget: it is no call of the program.
  if (status.ok()) engine->budget_.Uncount();
  if (connection->state != ConnectionState::kUp || engine->IsLeaving(connection)) return;
  engine->wheel_.Schedule(&ask->timer,
                          engine->now_ns_ + engine->Jittered(engine->options_.health_period_ns));
  if (status.ok()) {
    const bool serves = ask->reply.status() == health::v1::HealthCheckResponse::SERVING;
    return engine->Judge(connection, serves ? Health::kServing : Health::kNotServing,
                         "it does not serve");
  }
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:  // no health service: counts as serving
      return engine->Judge(connection, Health::kServing, "");
    case absl::StatusCode::kNotFound:
      return engine->Judge(connection, Health::kNotServing, "nothing is known of the service");
    case absl::StatusCode::kDeadlineExceeded:
      return engine->Judge(connection, Health::kNotServing, "it did not answer in time");
    default:  // no result: the last result stays
      return;
  }
}

void ClientEngine::Judge(Connection* connection, Health health, std::string_view why) {
  const Health before = std::exchange(connection->health, health);
  if (before == health) return;
  if (health == Health::kNotServing) {
    log_.Say(base::Severity::kWarning, "server unhealthy", connection->server,
             absl::StrCat(connection->server, " gets no calls while others serve: asked for ",
                          options_.health_service.empty() ? "its health" : options_.health_service,
                          ", ", std::string(why)));
  } else if (before == Health::kNotServing) {
    log_.Say(base::Severity::kInfo, "server healthy", connection->server,
             absl::StrCat(connection->server, " serves again"));
  }
  Reconsider();
  SendWaiting();
}

// Excludes each server that has not reported that it serves, if a connected server has.
void ClientEngine::Reconsider() {
  const bool someone_serves =
      std::any_of(connections_.begin(), connections_.end(), [](const auto& one) {
        return one->state == ConnectionState::kUp && one->health == Health::kServing;
      });
  for (const auto& one : connections_) {
    one->left_out = someone_serves && one->health != Health::kServing;
  }
}

bool ClientEngine::IsLeaving(const Connection* connection) const {
  return std::any_of(leaving_.begin(), leaving_.end(),
                     [&](const auto& one) { return one.get() == connection; });
}

}  // namespace sluice::call

// SPDX-License-Identifier: Apache-2.0
//
// The actions of the table. Each action submits one piece of work to Commands, and the result returns through Handle().
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/cm/connection.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {
namespace {

constexpr int kResolveTimeoutMs = 10'000;  // the kernel's own; ours are shorter
constexpr uint32_t kMaxDoublings = 4;

int ErrnoOf(int result) { return result == 0 ? 0 : (errno != 0 ? errno : EIO); }

constexpr int kOtherHost = -1;  // not an errno value

absl::Status OtherHostError(const Options& options, std::string_view peer) {
  return base::Error(
      absl::StatusCode::kFailedPrecondition, options.device + " does not reach other hosts",
      {.layer = "cm",
       .peer = peer,
       .operation = "connect",
       .cause = "it was selected because no mlx5 device is usable (" + options.only_this_host + ")",
       .remedy = "run sluice_info --check, and name the device with --device",
       .retry_safe = true});
}

}  // namespace

void ConnectionManager::Submit(Connection* c, std::function<int(Connection*)> work,
                               std::function<void(Connection*, int)> done) {
  ++c->commands;
  auto error_number = std::make_shared<int>(0);
  commands_.Submit([c, work = std::move(work), error_number] { *error_number = work(c); },
                   [this, c, done = std::move(done), error_number] {
                     --c->commands;
                     done(c, *error_number);
                     if (c->commands == 0) Settle(c);
                   });
}

// Runs the action that waited for the commands in flight.
void ConnectionManager::Settle(Connection* c) {
  if (c->destroy_waits) return DestroyNow(c);
  if (c->release_waits) return Release(c);
  if (c->state == State::kEstablished) SettleDown(c);
}

void ConnectionManager::Wait(Connection* c) {
  SetTimer(c, c->attempt()->deadline_ns);
  if (c->commands != 0) {
    c->release_waits = true;  // commands in flight may still use the id
    return;
  }
  Release(c);
}

// Frees the id and the number of the failed try: each try has a new id and a new number.
void ConnectionManager::Release(Connection* c) {
  c->release_waits = false;
  rdma_cm_id* id = std::exchange(c->id, nullptr);
  const uint32_t qpn = std::exchange(c->qpn, 0);
  // The quarantine lasts at least until the attempt ends: if the number is stale, the device must not assign it to the next try.
  if (qpn != 0) {
    Quarantine(qpn, std::max(clock_.NowNs() + options_.number_hold_ns, c->attempt()->deadline_ns));
  }
  c->qpn_exposed = false;
  if (id != nullptr) {
    Submit(
        c, [this, id](Connection*) { return api_.cm_destroy_id(id); }, [](Connection*, int) {});
  }
  c->attempt()->has_turn = false;
  if (c->attempt()->pause_ns > 0) return SetStepTimer(c, c->attempt()->pause_ns);
  TakeTurn(c);
}

void ConnectionManager::TakeTurn(Connection* c) {
  Attempt* attempt = c->attempt();
  if (c->release_waits) return SetTimer(c, attempt->deadline_ns);
  if (std::exchange(attempt->by_request, false)) attempt->has_turn = true;
  if (!attempt->has_turn) {
    attempt->has_turn = true;
    const int64_t now_ns = clock_.NowNs();
    const int64_t turn_ns = pacing_.TakeTurnNs(c->peer.str(), now_ns);
    if (turn_ns > now_ns) return SetStepTimer(c, turn_ns - now_ns);
  }
  SetTimer(c, attempt->deadline_ns);
  const bool more_addresses = attempt->next_address < attempt->addresses.size();
  Handle(c, more_addresses ? Event::kNextAddress : Event::kTryAgain);
}

// The query does not count as a command of the connection, so a name server that hangs keeps no record in use. If the attempt ends before
// the query starts, no query is sent.
void ConnectionManager::ResolveName(Connection* c) {
  Attempt* attempt = c->attempt();
  attempt->lookup = std::make_shared<Lookup>();
  attempt->lookup->host = attempt->host;
  attempt->lookup->port = attempt->port;
  const std::weak_ptr<Lookup> lookup = attempt->lookup;
  poller::Commands::Work work = [lookup, resolve = options_.resolve] {
    const auto asked = lookup.lock();
    if (asked != nullptr) asked->addresses = resolve(asked->host, asked->port, /*passive=*/false);
  };
  poller::Commands::Work done = [this, lookup, id = c->id_of()] {
    const auto answered = lookup.lock();
    Connection* own = Find(id);
    if (answered == nullptr || own == nullptr || own->state != State::kResolvingName) return;
    if (!answered->addresses.ok()) {
      const absl::Status& why = answered->addresses.status();
      return EndTry(own, why, absl::IsUnavailable(why) ? Verdict::kAgain : Verdict::kFinal);
    }
    own->attempt()->addresses = *std::move(answered->addresses);
    own->attempt()->next_address = 0;
    Handle(own, Event::kNameResolved);
  };
  if (IsNumeric(attempt->host)) return commands_.Submit(std::move(work), std::move(done));
  commands_.SubmitSlow(std::move(work), std::move(done));
}

void ConnectionManager::ResolveAddress(Connection* c) {
  SetStepTimer(c, options_.resolve_timeout_ns);
  auto made = std::make_shared<verbs::CmId>();  // destroyed with the command if `done` does not run
  Submit(
      c,
      [this, made](Connection* own) {
        rdma_cm_id* id = nullptr;
        errno = 0;
        const int error_number =
            ErrnoOf(api_.cm_create_id(channel_.get(), &id, own->context(), RDMA_PS_TCP));
        if (error_number == 0) *made = {&api_, id};
        return error_number;
      },
      [this, made](Connection* own, int error_number) {
        own->id = made->release();  // before its first event
        if (error_number != 0) return Fail(own, CommandError(*own, error_number, "rdma_create_id"));
        if (own->state == State::kResolvingAddress) StartResolving(own);
      });
}

void ConnectionManager::StartResolving(Connection* c) {
  const sockaddr_storage address = c->attempt()->addresses[c->attempt()->next_address++];
  auto call = std::make_shared<const char*>("rdma_resolve_addr");
  Submit(
      c,
      [this, address, call](Connection* own) {
        if (!options_.only_this_host.empty() && !IsOfThisHost(address)) return kOtherHost;
        sockaddr_storage copy = address;
        // Without a source address, the kernel uses the device of its route, which may be another device.
        std::optional<sockaddr_storage> source;
        if (options_.own_address) source = options_.own_address();
        const bool same_family = source.has_value() && source->ss_family == address.ss_family;
        if (options_.type_of_service) {
          uint8_t tos = *options_.type_of_service;  // set before the route, which depends on it
          errno = 0;
          const int error_number = ErrnoOf(
              api_.cm_set_option(own->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)));
          if (error_number != 0) {
            *call = "rdma_set_option (TOS)";
            return error_number;
          }
        }
        errno = 0;
        return ErrnoOf(api_.cm_resolve_addr(
            own->id, same_family ? reinterpret_cast<sockaddr*>(&*source) : nullptr,
            reinterpret_cast<sockaddr*>(&copy), kResolveTimeoutMs));
      },
      [this, call](Connection* own, int error_number) {
        if (error_number == 0) return;
        const absl::Status why = error_number == kOtherHost
                                     ? OtherHostError(options_, own->peer)
                                     : CommandError(*own, error_number, *call);
        EndTry(own, why, Verdict::kElsewhere);
      });
}

void ConnectionManager::SendRequest(Connection* c) {
  if (!IsOurs(*c->id)) {
    const std::string other = PlaceOf(c->id->verbs->device->name, c->id->port_num);
    return Fail(c, base::Error(absl::StatusCode::kFailedPrecondition,
                               "the peer is reached over " + other + ", this process uses " +
                                   PlaceOf(options_.device, options_.port),
                               {.layer = "cm",
                                .peer = c->peer,
                                .operation = "connect",
                                .cause = "the address belongs to the network of that device",
                                .remedy = "start with --device=" + other}));
  }
  ++metrics_.tries;
  const uint32_t doublings = std::min(c->attempt()->tries++, kMaxDoublings);
  SetStepTimer(c, options_.answer_timeout_ns << doublings);
  c->qpn_exposed = true;
  auto status = std::make_shared<absl::Status>();
  Submit(
      c,
      [this, status](Connection* own) {
        auto qpn = numbers_.Take();
        if (!qpn.ok()) {
          *status = qpn.status();
          return EAGAIN;
        }
        own->qpn = *qpn;
        if (options_.local_ece.vendor_id != 0) {
          ibv_ece ece = options_.local_ece;
          api_.cm_set_local_ece(own->id, &ece);  // an offer: without this call the peer sees none
        }
        rdma_conn_param param = {};
        param.private_data = own->attempt()->outgoing.data();
        param.private_data_len = static_cast<uint8_t>(own->attempt()->outgoing_bytes);
        param.responder_resources = param.initiator_depth = 1;
        param.retry_count = param.rnr_retry_count = 7;
        param.qp_num = own->qpn;
        errno = 0;
        return ErrnoOf(api_.cm_connect(own->id, &param));
      },
      [this, status](Connection* own, int error_number) {
        if (error_number == 0) return;
        Fail(own, status->ok() ? CommandError(*own, error_number, "rdma_connect") : *status);
      });
}

void ConnectionManager::SendResponse(Connection* c) {
  c->qpn_exposed = true;
  auto status = std::make_shared<absl::Status>();
  Submit(
      c,
      [this, status](Connection* own) {
        auto qpn = numbers_.Take();
        if (!qpn.ok()) {
          *status = qpn.status();
          return EAGAIN;
        }
        own->qpn = *qpn;
        if (own->attempt()->answer_ece.vendor_id != 0)
          api_.cm_set_local_ece(own->id, &own->attempt()->answer_ece);
        rdma_conn_param param = {};
        param.private_data = own->attempt()->outgoing.data();
        param.private_data_len = static_cast<uint8_t>(own->attempt()->outgoing_bytes);
        param.responder_resources = param.initiator_depth = 1;
        param.rnr_retry_count = 7;
        param.qp_num = own->qpn;
        errno = 0;
        return ErrnoOf(api_.cm_accept(own->id, &param));
      },
      [this, status](Connection* own, int error_number) {
        if (error_number == 0) return;
        Fail(own, status->ok() ? CommandError(*own, error_number, "rdma_accept") : *status);
      });
}

void ConnectionManager::ReadPath(Connection* c) {
  SetTimer(c, c->attempt()->deadline_ns);
  Submit(
      c,
      [this](Connection* own) {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_RTR;
        int mask = 0;
        errno = 0;
        const int result = ErrnoOf(api_.cm_init_qp_attr(own->id, &attr, &mask));
        if (result != 0) return result;
        own->attempt()->path.ah = attr.ah_attr;
        own->attempt()->path.mtu = attr.path_mtu;
        if (own->id->verbs != nullptr) own->attempt()->path.device = own->id->verbs->device->name;
        if (api_.cm_get_remote_ece(own->id, &own->attempt()->path.remote_ece) != 0)
          own->attempt()->path.remote_ece = {};
        return 0;
      },
      [this](Connection* own, int error_number) {
        if (error_number == 0) return Handle(own, Event::kPathRead);
        Fail(own, CommandError(*own, error_number, "rdma_init_qp_attr"));
      });
}

// Submits a call that only starts an operation. An event of RDMA_CM reports the result.
void ConnectionManager::Call(Connection* c, const char* call,
                             int (*run)(const verbs::VerbsApi&, rdma_cm_id*),
                             void (*done)(Connection*)) {
  Submit(
      c,
      [this, run](Connection* own) {
        errno = 0;
        return ErrnoOf(run(api_, own->id));
      },
      [this, call, done](Connection* own, int error_number) {
        if (error_number == 0) {
          if (done != nullptr) done(own);
          return;
        }
        Fail(own, CommandError(*own, error_number, call));
      });
}

void ConnectionManager::ResolveRoute(Connection* c) {
  SetStepTimer(c, options_.resolve_timeout_ns);
  Call(
      c, "rdma_resolve_route",
      [](const verbs::VerbsApi& api, rdma_cm_id* id) {
        return api.cm_resolve_route(id, kResolveTimeoutMs);
      },
      nullptr);
}

// The active side gets no event for its own RTU (man rdma_establish).
void ConnectionManager::SendReady(Connection* c) {
  Call(
      c, "rdma_establish",
      [](const verbs::VerbsApi& api, rdma_cm_id* id) { return api.cm_establish(id); },
      [](Connection* own) { own->passage->manager->Handle(own, Event::kEstablishSent); });
}

void ConnectionManager::Disconnect(Connection* c) {
  Call(
      c, "rdma_disconnect",
      [](const verbs::VerbsApi& api, rdma_cm_id* id) { return api.cm_disconnect(id); }, nullptr);
}

// The kernel sends the DREP only when this side disconnects too; until then the peer waits (fact 106). This is also necessary if both sides
// disconnect at once: each side then waits for the other's answer.
void ConnectionManager::AnswerAndKeep(Connection* c) {
  if (!c->leaving) {
    c->leaving = true;
    ++leaving_;
  }
  PassageOf(c).hold_until_ns = clock_.NowNs() + options_.number_hold_ns;
  SetTimer(c, c->passage->hold_until_ns);
  Disconnect(c);
}

void ConnectionManager::RejectAndDestroy(Connection* c) {
  CancelTimer(c);
  Submit(
      c,
      [this](Connection* own) {
        return api_.cm_reject(own->id, own->attempt()->outgoing.data(),
                              static_cast<uint8_t>(own->attempt()->outgoing_bytes));
      },
      [this](Connection* own, int) { Destroy(own); });
}

void ConnectionManager::Destroy(Connection* c) {
  CancelTimer(c);
  if (c->commands != 0) {
    c->destroy_waits = true;  // commands in flight may still use the id
    return;
  }
  DestroyNow(c);
}

void ConnectionManager::DestroyNow(Connection* c) {
  c->destroy_waits = c->release_waits = false;
  rdma_cm_id* id = std::exchange(c->id, nullptr);
  uint32_t qpn = std::exchange(c->qpn, 0);
  if (c->leaving) --leaving_;
  c->leaving = false;
  // TIMEWAIT_EXIT reports the end of this side's timewait only. If the DREP of this side was lost, the timewait of the peer has not begun.
  const int64_t now_ns = clock_.NowNs();
  const int64_t held_ns = c->passage == nullptr ? 0 : c->passage->hold_until_ns;
  const int64_t until_ns = held_ns != 0 ? held_ns : now_ns + options_.number_hold_ns;
  if (qpn != 0 && c->qpn_exposed && until_ns > now_ns) {
    Quarantine(qpn, until_ns);
    qpn = 0;
  }
  Submit(
      c,
      [this, id, qpn](Connection*) {
        if (id != nullptr) api_.cm_destroy_id(id);
        if (qpn != 0) numbers_.Give(qpn);
        return 0;
      },
      [this](Connection* own, int) { Handle(own, Event::kDestroyed); });
}

void ConnectionManager::Quarantine(uint32_t qpn, int64_t until_ns) {
  quarantine_.push({.until_ns = until_ns, .qpn = qpn});
  timers_.Schedule(&quarantine_timer_, quarantine_.top().until_ns);
}

void ConnectionManager::OnQuarantineEnd(base::Timer*, void* context) {
  auto* self = static_cast<ConnectionManager*>(context);
  const int64_t now_ns = self->clock_.NowNs();
  while (!self->quarantine_.empty() && self->quarantine_.top().until_ns <= now_ns) {
    const uint32_t qpn = self->quarantine_.top().qpn;
    self->quarantine_.pop();
    self->commands_.Submit([self, qpn] { self->numbers_.Give(qpn); }, [] {});
  }
  if (!self->quarantine_.empty()) {
    self->timers_.Schedule(&self->quarantine_timer_, self->quarantine_.top().until_ns);
  }
}

}  // namespace sluice::cm

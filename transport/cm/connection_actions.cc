// SPDX-License-Identifier: Apache-2.0
//
// What the table's actions do. Each submits one piece of work to Commands; what comes of it goes
// back through Handle().
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/cm/connection.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {
namespace {

constexpr int kResolveTimeoutMs = 10'000;  // the kernel's own; ours is the connection's deadline

int ErrnoOf(int result) { return result == 0 ? 0 : (errno != 0 ? errno : EIO); }

}  // namespace

void ConnectionManager::Submit(Connection* c, std::function<int(Connection*)> work,
                               std::function<void(Connection*, int)> done) {
  ++c->commands;
  auto error_number = std::make_shared<int>(0);
  commands_.Submit([c, work = std::move(work), error_number] { *error_number = work(c); },
                   [this, c, done = std::move(done), error_number] {
                     --c->commands;
                     done(c, *error_number);
                     if (c->destroy_waits && c->commands == 0) DestroyNow(c);
                   });
}

void ConnectionManager::ResolveName(Connection* c) {
  Submit(
      c,
      [](Connection* own) {
        auto addresses = Resolve(own->host, own->port, /*passive=*/false);
        own->resolve_status = addresses.status();
        if (addresses.ok()) own->addresses = std::move(*addresses);
        return 0;
      },
      [this](Connection* own, int) {
        if (own->resolve_status.ok()) return Handle(own, Event::kNameResolved);
        if (own->why.ok()) own->why = own->resolve_status;
        Handle(own, Event::kFailed);
      });
}

// With a fresh id: an id that failed is of no further use.
void ConnectionManager::ResolveAddress(Connection* c) {
  rdma_cm_id* old = std::exchange(c->id, nullptr);
  if (c->qpn != 0) Quarantine(std::exchange(c->qpn, 0));
  c->qpn_exposed = false;
  const sockaddr_storage address = c->addresses[c->next_address++];
  auto made = std::make_shared<rdma_cm_id*>(nullptr);
  Submit(
      c,
      [this, old, address, made](Connection* own) {
        if (old != nullptr) api_.cm_destroy_id(old);
        errno = 0;
        const int result =
            ErrnoOf(api_.cm_create_id(channel_.get(), made.get(), own->context(), RDMA_PS_TCP));
        if (result != 0) return result;
        sockaddr_storage copy = address;
        own->id = *made;  // before its first event
        errno = 0;
        return ErrnoOf(api_.cm_resolve_addr(*made, nullptr, reinterpret_cast<sockaddr*>(&copy),
                                            kResolveTimeoutMs));
      },
      [this](Connection* own, int error_number) {
        if (error_number == 0) return;
        Handle(own, FailOrRetry(own, CommandError(*own, error_number, "rdma_resolve_addr"),
                                /*worth_another_address=*/true, /*stale=*/false));
      });
}

void ConnectionManager::SendRequest(Connection* c) {
  if (!options_.device.empty() && c->id->verbs != nullptr &&
      options_.device != c->id->verbs->device->name) {
    if (c->why.ok()) {
      c->why =
          base::Error(absl::StatusCode::kFailedPrecondition,
                      "the peer is reached over device " + std::string(c->id->verbs->device->name) +
                          ", this process uses " + options_.device,
                      {.layer = "cm",
                       .peer = c->peer,
                       .operation = "connect",
                       .cause = "the address belongs to the network of the other device",
                       .remedy = "start with --device=" + std::string(c->id->verbs->device->name)});
    }
    return Handle(c, Event::kFailed);
  }
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
          api_.cm_set_local_ece(own->id, &ece);  // an offer: without it the peer sees none
        }
        rdma_conn_param param = {};
        param.private_data = own->outgoing.data();
        param.private_data_len = static_cast<uint8_t>(own->outgoing_bytes);
        param.responder_resources = param.initiator_depth = 1;
        param.retry_count = param.rnr_retry_count = 7;
        param.qp_num = own->qpn;
        errno = 0;
        return ErrnoOf(api_.cm_connect(own->id, &param));
      },
      [this, status](Connection* own, int error_number) {
        if (error_number == 0) return;
        absl::Status why =
            status->ok() ? CommandError(*own, error_number, "rdma_connect") : *status;
        if (own->why.ok()) own->why = std::move(why);
        Handle(own, Event::kFailed);
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
        if (own->answer_ece.vendor_id != 0) api_.cm_set_local_ece(own->id, &own->answer_ece);
        rdma_conn_param param = {};
        param.private_data = own->outgoing.data();
        param.private_data_len = static_cast<uint8_t>(own->outgoing_bytes);
        param.responder_resources = param.initiator_depth = 1;
        param.rnr_retry_count = 7;
        param.qp_num = own->qpn;
        errno = 0;
        return ErrnoOf(api_.cm_accept(own->id, &param));
      },
      [this, status](Connection* own, int error_number) {
        if (error_number == 0) return;
        absl::Status why = status->ok() ? CommandError(*own, error_number, "rdma_accept") : *status;
        if (own->why.ok()) own->why = std::move(why);
        Handle(own, Event::kFailed);
      });
}

void ConnectionManager::ReadPath(Connection* c) {
  Submit(
      c,
      [this](Connection* own) {
        ibv_qp_attr attr = {};
        attr.qp_state = IBV_QPS_RTR;
        int mask = 0;
        errno = 0;
        const int result = ErrnoOf(api_.cm_init_qp_attr(own->id, &attr, &mask));
        if (result != 0) return result;
        own->path.ah = attr.ah_attr;
        own->path.mtu = attr.path_mtu;
        if (own->id->verbs != nullptr) own->path.device = own->id->verbs->device->name;
        if (api_.cm_get_remote_ece(own->id, &own->path.remote_ece) != 0) own->path.remote_ece = {};
        return 0;
      },
      [this](Connection* own, int error_number) {
        if (error_number == 0) return Handle(own, Event::kPathRead);
        if (own->why.ok()) own->why = CommandError(*own, error_number, "rdma_init_qp_attr");
        Handle(own, Event::kFailed);
      });
}

// Calls that only start something: what comes of it is an event of the connection manager.
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
        if (own->why.ok()) own->why = CommandError(*own, error_number, call);
        Handle(own, Event::kFailed);
      });
}

void ConnectionManager::ResolveRoute(Connection* c) {
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
      [](Connection* own) { own->manager->Handle(own, Event::kEstablishSent); });
}

void ConnectionManager::Disconnect(Connection* c) {
  Call(
      c, "rdma_disconnect",
      [](const verbs::VerbsApi& api, rdma_cm_id* id) { return api.cm_disconnect(id); }, nullptr);
}

void ConnectionManager::RejectAndDestroy(Connection* c) {
  timers_.Cancel(&c->deadline);
  Submit(
      c,
      [this](Connection* own) {
        return api_.cm_reject(own->id, own->outgoing.data(),
                              static_cast<uint8_t>(own->outgoing_bytes));
      },
      [this](Connection* own, int) { Destroy(own); });
}

void ConnectionManager::Destroy(Connection* c) {
  timers_.Cancel(&c->deadline);
  if (c->commands != 0) {
    c->destroy_waits = true;  // what is under way may still use the id
    return;
  }
  DestroyNow(c);
}

void ConnectionManager::DestroyNow(Connection* c) {
  c->destroy_waits = false;
  rdma_cm_id* id = std::exchange(c->id, nullptr);
  uint32_t qpn = std::exchange(c->qpn, 0);
  if (qpn != 0 && c->qpn_exposed && !c->timewait_over) {
    Quarantine(qpn);
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

void ConnectionManager::Quarantine(uint32_t qpn) {
  const int64_t until_ns = clock_.NowNs() + options_.timewait_limit_ns;
  quarantine_.push_back({qpn, until_ns});
  if (!quarantine_timer_.armed()) timers_.Schedule(&quarantine_timer_, until_ns);
}

void ConnectionManager::OnQuarantineEnd(base::Timer*, void* context) {
  auto* self = static_cast<ConnectionManager*>(context);
  const int64_t now_ns = self->clock_.NowNs();
  while (!self->quarantine_.empty() && self->quarantine_.front().until_ns <= now_ns) {
    const uint32_t qpn = self->quarantine_.front().qpn;
    self->quarantine_.pop_front();
    self->commands_.Submit([self, qpn] { self->numbers_.Give(qpn); }, [] {});
  }
  if (!self->quarantine_.empty()) {
    self->timers_.Schedule(&self->quarantine_timer_, self->quarantine_.front().until_ns);
  }
}

}  // namespace sluice::cm

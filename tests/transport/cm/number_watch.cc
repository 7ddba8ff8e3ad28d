// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/cm/number_watch.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/state_machine.h"

namespace sluice::cm {
namespace {

using softdc::cm::IdState;
using softdc::cm::State;
using softdc::sim::Simulation;

constexpr uint32_t kFirstReserved = 0x100000;
constexpr uint32_t kNobody = UINT32_MAX;

thread_local NumberWatch* current = nullptr;

// Whether the host of an id in this state knows its own and its peer's number as connected.
bool Knows(State state) {
  switch (state) {
    case State::kReqSent:
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kRepSent:
    case State::kEstablished:
    case State::kDreqSent:
    case State::kDreqReceived:
    case State::kTimewait:
      return true;
    default:
      return false;
  }
}

}  // namespace

struct NumberWatch::Calls {
  static int AllocateReserved(ibv_context* context, uint32_t* number) {
    // The device says whether it reserves at all; which number is ours to say.
    const int error_number = Simulation::Verbs().dv_reserved_qpn_alloc(context, number);
    if (error_number != 0) return error_number;
    Simulation::Verbs().dv_reserved_qpn_dealloc(context, *number);
    *number = current->TakeLowest(current->NodeOf(context));
    return 0;
  }
  static int FreeReserved(ibv_context* context, uint32_t number) {
    const uint32_t node = current->NodeOf(context);
    if (!current->outstanding_[node].contains(number)) return EINVAL;
    current->OnGiven(node, number);
    return 0;
  }
  static ibv_qp* CreateQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv) {
    ibv_qp* qp = Simulation::Verbs().dv_create_qp(context, attr, dv);
    if (qp != nullptr) current->OnTaken(current->NodeOf(context), qp->qp_num);
    return qp;
  }
  static ibv_qp* CreatePlainQp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp* qp = Simulation::Verbs().create_qp(pd, attr);
    if (qp != nullptr) current->OnTaken(current->NodeOf(pd->context), qp->qp_num);
    return qp;
  }
  static int DestroyQp(ibv_qp* qp) {
    current->OnGiven(current->NodeOf(qp->context), qp->qp_num);
    return Simulation::Verbs().destroy_qp(qp);
  }
  static int DestroyId(rdma_cm_id* id) {
    // The hosts of both ends of an id differ, so it is enough to compare all.
    std::vector<std::vector<IdState>> before;
    for (uint32_t node = 0; node < current->simulation_.nodes(); ++node) {
      before.push_back(current->simulation_.CmEngine(node).Ids());
    }
    const int result = Simulation::Verbs().cm_destroy_id(id);
    for (uint32_t node = 0; node < before.size(); ++node) current->Forget(node, before[node]);
    return result;
  }
};

NumberWatch::NumberWatch(Simulation& simulation)
    : simulation_(simulation),
      outstanding_(simulation.nodes()),
      used_(simulation.nodes()),
      dead_(simulation.nodes()) {
  current = this;
}

NumberWatch::~NumberWatch() { current = nullptr; }

const verbs::VerbsApi& NumberWatch::Table() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_reserved_qpn_alloc = &Calls::AllocateReserved;
    api.dv_reserved_qpn_dealloc = &Calls::FreeReserved;
    api.create_qp = &Calls::CreatePlainQp;
    api.dv_create_qp = &Calls::CreateQp;
    api.destroy_qp = &Calls::DestroyQp;
    api.cm_destroy_id = &Calls::DestroyId;
    return api;
  }();
  return table;
}

uint32_t NumberWatch::NodeOf(const ibv_context* context) const {
  for (uint32_t node = 0; node < simulation_.nodes(); ++node) {
    if (simulation_.Device(node) == context->device) return node;
  }
  return kNobody;
}

uint32_t NumberWatch::NodeOf(const sockaddr_storage& address) const {
  if (address.ss_family != AF_INET) return kNobody;
  const uint32_t v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr;
  for (uint32_t node = 0; node < simulation_.nodes(); ++node) {
    if (Simulation::Address(node).s_addr == v4) return node;
  }
  return kNobody;
}

uint32_t NumberWatch::TakeLowest(uint32_t node) {
  uint32_t number = kFirstReserved;
  for (auto it = outstanding_[node].lower_bound(number);
       it != outstanding_[node].end() && *it == number; ++it) {
    ++number;
  }
  ++reserved_;
  OnTaken(node, number);
  return number;
}

void NumberWatch::OnTaken(uint32_t node, uint32_t number) {
  ++taken_;
  if (!outstanding_[node].insert(number).second)
    Violation(node, number, "the device gave it twice");
  if (!used_[node].insert(number).second) ++taken_again_;
  if (dead_[node].erase(number) != 0) {
    ++reissued_;
    return;
  }
  for (uint32_t where = 0; where < simulation_.nodes(); ++where) {
    for (const IdState& id : simulation_.CmEngine(where).Ids()) {
      if (!Knows(id.state)) continue;
      if (where == node && id.local_qp_num == number) {
        Violation(node, number, std::string("its own id is ") + softdc::cm::Name(id.state));
      }
      if (where != node && id.peer_qp_num == number && NodeOf(id.peer) == node) {
        Violation(node, number,
                  "node " + std::to_string(where) + "'s id is " + softdc::cm::Name(id.state));
      }
    }
  }
  std::erase_if(remembered_, [now_ns = simulation_.NowNs()](const Remembered& remembered) {
    return remembered.until_ns <= now_ns;
  });
  for (const Remembered& remembered : remembered_) {
    if (remembered.owner != node || remembered.number != number) continue;
    Violation(node, number,
              "a destroyed id of node " + std::to_string(remembered.where) + " is in timewait");
  }
}

void NumberWatch::OnGiven(uint32_t node, uint32_t number) {
  if (outstanding_[node].erase(number) != 0 || dead_[node].contains(number)) return;
  Violation(node, number, "given back twice");
}

void NumberWatch::Died(uint32_t node) {
  dead_[node].merge(outstanding_[node]);
  outstanding_[node].clear();
}

void NumberWatch::Forget(uint32_t node, const std::vector<IdState>& before) {
  std::set<uint64_t> left;
  for (const IdState& id : simulation_.CmEngine(node).Ids()) left.insert(id.serial);
  for (const IdState& id : before) {
    if (left.contains(id.serial) || !Knows(id.state)) continue;
    const int64_t until_ns = simulation_.NowNs() + id.timewait_ns;
    if (id.local_qp_num != 0) remembered_.push_back({node, id.local_qp_num, until_ns, node});
    const uint32_t peer = NodeOf(id.peer);
    if (id.peer_qp_num != 0 && peer != kNobody) {
      remembered_.push_back({peer, id.peer_qp_num, until_ns, node});
    }
  }
}

void NumberWatch::Violation(uint32_t node, uint32_t number, const std::string& why) {
  violations_.push_back("at " + std::to_string(simulation_.NowNs() / 1'000'000) + " ms node " +
                        std::to_string(node) + " took number " + std::to_string(number) + ": " +
                        why);
}

uint64_t NumberWatch::stale() const {
  uint64_t sum = 0;
  for (uint32_t node = 0; node < simulation_.nodes(); ++node) {
    sum += simulation_.CmEngine(node).counters().stale_connections;
  }
  return sum;
}

size_t NumberWatch::ids(uint32_t node) const { return simulation_.CmEngine(node).Ids().size(); }

}  // namespace sluice::cm

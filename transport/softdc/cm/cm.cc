// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/cm.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/shm_fabric.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc::cm {
namespace {

std::mutex g_mutex;
DeviceHooks* g_hooks = nullptr;
Engine* g_engine = nullptr;  // never destroyed, as the loop
std::atomic<Engine*> g_test_engine{nullptr};

// The child of a fork has neither the loop's thread nor the wires: it starts with an engine of its
// own, and the parent's ids are of no use to it, as with librdmacm.
void BeforeFork() { g_mutex.lock(); }
void AfterForkInParent() { g_mutex.unlock(); }
void AfterForkInChild() {
  g_engine = nullptr;
  g_mutex.unlock();
}

Engine* CurrentEngine() {
  if (Engine* engine = g_test_engine.load()) return engine;
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_engine == nullptr) {
    Loop& loop = Loop::Get();
    static const int registered [[maybe_unused]] =
        pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
    auto* engine = new Engine(g_hooks != nullptr ? *g_hooks : DeviceHooks{}, new LoopTimers(&loop));
    engine->SetFabric(std::make_unique<ShmFabric>(&loop, engine));
    g_engine = engine;
  }
  return g_engine;
}

Id* Of(rdma_cm_id* id) { return static_cast<Id*>(id); }
Channel* Of(rdma_event_channel* channel) { return static_cast<Channel*>(channel); }

int Result(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace

void SetDeviceHooks(DeviceHooks hooks) {
  std::lock_guard<std::mutex> lock(g_mutex);
  delete g_hooks;
  g_hooks = new DeviceHooks(std::move(hooks));
}

void UseEngineForTest(Engine* engine) { g_test_engine.store(engine); }

rdma_event_channel* create_event_channel() {
  Channel* channel = nullptr;
  const int error = CurrentEngine()->CreateChannel(&channel);
  if (error != 0) errno = error;
  return channel;
}

void destroy_event_channel(rdma_event_channel* channel) {
  if (channel != nullptr) Of(channel)->engine->DestroyChannel(Of(channel));
}

int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  if (id == nullptr) return Result(EINVAL);
  if (channel == nullptr || ps != RDMA_PS_TCP) return Result(EOPNOTSUPP);
  Id* created = nullptr;
  const int error = Of(channel)->engine->CreateId(Of(channel), context, ps, &created);
  if (error == 0) *id = created;
  return Result(error);
}

int destroy_id(rdma_cm_id* id) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->DestroyId(Of(id)));
}

int bind_addr(rdma_cm_id* id, sockaddr* addr) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Bind(Of(id), addr));
}

int resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int /*timeout_ms*/) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->ResolveAddr(Of(id), src_addr, dst_addr));
}

int resolve_route(rdma_cm_id* id, int /*timeout_ms*/) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->ResolveRoute(Of(id)));
}

int connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Connect(Of(id), conn_param));
}

int establish(rdma_cm_id* id) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Establish(Of(id)));
}

int listen(rdma_cm_id* id, int backlog) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Listen(Of(id), backlog));
}

int accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Accept(Of(id), conn_param));
}

int reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  if (id == nullptr) return Result(EINVAL);
  return Result(
      Of(id)->engine->Reject(Of(id), private_data, private_data_len, kRejConsumerDefined));
}

int reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  if (id == nullptr) return Result(EINVAL);
  return Result(
      Of(id)->engine->Reject(Of(id), private_data, private_data_len, kRejVendorOptionNotSupported));
}

int notify(rdma_cm_id* id, ibv_event_type event) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Notify(Of(id), event));
}

int disconnect(rdma_cm_id* id) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->Disconnect(Of(id)));
}

__be16 get_src_port(rdma_cm_id* id) { return PortOf(&id->route.addr.src_addr); }

__be16 get_dst_port(rdma_cm_id* id) { return PortOf(&id->route.addr.dst_addr); }

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return Result(EINVAL);
  Event* got = nullptr;
  const int error = Of(channel)->engine->GetEvent(Of(channel), &got);
  if (error == 0) *event = got;
  return Result(error);
}

int ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return Result(EINVAL);
  Event* const acked = static_cast<Event*>(event);
  acked->owner->engine->AckEvent(acked);
  return 0;
}

int migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  if (id == nullptr) return Result(EINVAL);
  if (channel == nullptr) return Result(EOPNOTSUPP);
  return Result(Of(id)->engine->Migrate(Of(id), Of(channel)));
}

int set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  if (id == nullptr) return Result(EINVAL);
  return Result(Of(id)->engine->SetOption(Of(id), level, optname, optval, optlen));
}

int init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  if (id == nullptr || qp_attr == nullptr || qp_attr_mask == nullptr) return Result(EINVAL);
  return Result(Of(id)->engine->InitQpAttr(Of(id), qp_attr, qp_attr_mask));
}

int set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->SetLocalEce(Of(id), ece));
}

int get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  return Result(id == nullptr ? EINVAL : Of(id)->engine->GetRemoteEce(Of(id), ece));
}

int create_qp(rdma_cm_id* /*id*/, ibv_pd* /*pd*/, ibv_qp_init_attr* /*qp_init_attr*/) {
  return Result(EOPNOTSUPP);
}

}  // namespace sluice::softdc::cm

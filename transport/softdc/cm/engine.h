// SPDX-License-Identifier: Apache-2.0
//
// Engine: the connection manager of one process. It drives the ids' state machines
// (state_machine.h) with calls of the application, messages of other engines (fabric.h) and timers,
// and queues the events.
//
// Thread-safety: all members; one lock guards everything. Calls return 0 or an errno value and
// never block, but for GetEvent (on a blocking channel), Destroy and Migrate (until the id's events
// are acknowledged).
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "transport/softdc/cm/event_channel.h"
#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/cm/state_machine.h"
#include "transport/softdc/cm/wire_message.h"

namespace sluice::softdc::cm {

// The kernel's: a request or disconnect request is sent 16 times, 6.4 s apart, so 102 s in all.
constexpr int64_t kRetryNs = 6'400'000'000;
constexpr uint32_t kMaxAttempts = 16;

// The peer process took the connection and left without a word: tried again at once, a few times.
constexpr int64_t kQuickRetryNs = 10'000'000;
constexpr uint32_t kMaxUnanswered = 3;

constexpr uint32_t kDefaultBacklog = 1024;
constexpr size_t kMaxUnidentifiedWires = 1024;      // connected, no REQ yet; more are turned away
constexpr int64_t kFirstMessageNs = 5'000'000'000;  // until then a wire must have sent its REQ

// How ids come by their device. Called without the engine's lock; may return nullptr, then calls
// say ENODEV.
struct DeviceHooks {
  std::function<ibv_context*()> context;
  std::function<ibv_pd*()> pd;
  uint64_t node_guid = 0;
};

struct EngineCounters {
  uint64_t garbage_messages = 0;   // refused by DecodeMessage, or too long
  uint64_t refused_wires = 0;      // beyond kMaxUnidentifiedWires, or silent for kFirstMessageNs
  uint64_t ignored_messages = 0;   // not legal in the id's state
  uint64_t stale_connections = 0;  // REQs and REPs with a queue pair number in use
  uint64_t backlog_drops = 0;
};

class Engine final : public FabricEvents {
 public:
  // Without hooks (context == nullptr) ids have no verbs and pd, which is enough for tests.
  Engine(DeviceHooks hooks, Timers* timers);
  // No call may be in progress and no id or channel left.
  ~Engine() override;

  // Before any other call.
  void SetFabric(std::unique_ptr<Fabric> fabric);

  int CreateChannel(Channel** channel);
  void DestroyChannel(Channel* channel);
  int CreateId(Channel* channel, void* context, rdma_port_space ps, Id** id);
  int DestroyId(Id* id);

  int Bind(Id* id, const sockaddr* address);
  int ResolveAddr(Id* id, const sockaddr* source, const sockaddr* destination);
  int ResolveRoute(Id* id);
  int Listen(Id* id, int backlog);
  int Connect(Id* id, const rdma_conn_param* param);
  int Accept(Id* id, const rdma_conn_param* param);
  int Reject(Id* id, const void* private_data, uint8_t length, int reason);
  int Establish(Id* id);
  int Disconnect(Id* id);
  int Notify(Id* id, ibv_event_type event);

  int GetEvent(Channel* channel, Event** event);
  void AckEvent(Event* event);
  int Migrate(Id* id, Channel* channel);

  int SetOption(Id* id, int level, int name, const void* value, size_t length);
  int InitQpAttr(Id* id, ibv_qp_attr* attr, int* mask);
  int SetLocalEce(Id* id, const ibv_ece* ece);
  int GetRemoteEce(Id* id, ibv_ece* ece);

  EngineCounters counters() const;

  // FabricEvents.
  void OnReady(Handle handle) override;

 private:
  // What an input brings along; only what its action reads is set.
  struct Arguments {
    const sockaddr* source = nullptr;
    const sockaddr* destination = nullptr;
    const rdma_conn_param* param = nullptr;
    const WireMessage* message = nullptr;
    const void* private_data = nullptr;
    uint8_t private_data_bytes = 0;
    int reject_reason = 0;
    int backlog = 0;
    int error = 0;
  };
  struct UnidentifiedWire {
    Id* listener;
    uint64_t timer;
  };

  // engine.cc: the machinery. All under mutex_.
  int Apply(Id* id, Input input, Arguments* arguments);
  void Enter(Id* id, State state);
  void Tell(Id* id, const Row& row, const Arguments& arguments);
  void StartTimer(Id* id, int64_t delay_ns);
  void StopTimer(Id* id);
  void OnTimer(uint64_t serial, uint32_t generation);
  Id* NewId(Channel* channel, void* context, rdma_port_space ps);
  void Abandon(
      Id* id);       // says goodbye as its state asks for, and lets go of everything but the object
  int LoadDevice();  // without mutex_
  void AttachDevice(Id* id);
  void CloseWire(Id* id);
  void CloseKey(Id* id);

  // engine_actions.cc: what rows of the table do. Return an errno value; `next` is an input that
  // follows at once.
  int Do(Action action, Id* id, Arguments* arguments, Input* next, bool* has_next);
  int DoBind(Id* id, const sockaddr* address);
  int DoResolveAddr(Id* id, const Arguments& arguments, Input* next);
  int DoListen(Id* id, int backlog);
  void BuildReq(Id* id, const rdma_conn_param& param);
  bool SendReq(Id* id, Arguments* arguments, Input* next);
  void SendRep(Id* id, const rdma_conn_param& param);
  void TakeRep(Id* id, const WireMessage& rep);
  void SendRej(Handle wire, int reason, const void* private_data, size_t bytes);
  void Send(Handle wire, const WireMessage& message);

  // engine_receive.cc: what comes from the fabric.
  void AcceptWires(Id* listener);
  void ReceiveFirst(Handle wire);
  void ReceiveMore(Id* id);
  void OnMessage(Id* id, const WireMessage& message);
  void OnReq(Id* listener, Handle wire, const WireMessage& req);
  void DropUnidentified(Handle wire, bool refused);

  const DeviceHooks hooks_;
  Timers* const timers_;
  std::unique_ptr<Fabric> fabric_;

  mutable std::mutex mutex_;
  std::condition_variable event_acked_;
  ibv_context* device_context_ = nullptr;
  ibv_pd* device_pd_ = nullptr;
  std::unordered_map<uint64_t, Id*> ids_by_serial_;
  std::unordered_map<Handle, Id*> ids_by_handle_;  // wires, listeners and keys
  std::unordered_map<Handle, UnidentifiedWire> unidentified_;
  uint64_t next_serial_ = 1;
  uint64_t psn_state_;
  EngineCounters counters_;

  uint32_t NextPsn();
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_

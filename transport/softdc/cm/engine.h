// SPDX-License-Identifier: Apache-2.0
//
// Engine: the kernel's connection manager, for one process. Calls of the application, messages of other
// engines (fabric.h) and timers drive the state machines of the ids (state_machine.h). The engine queues the
// events. Additions of librdmacm (rdma_cm_id, acknowledgements, queue pairs of an id) are not here. Two
// interfaces use this engine: cm.h and ucma/.
//
// A call names its channel, and an id by number. Calls return 0 or an errno value and never block. For all
// calls:
//   ENOENT  there is no such id
//   EINVAL  the id belongs to another channel, needs a device and has none, or is in a wrong state for the call
//
// Threads       Any. One lock guards everything.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_

#include <rdma/rdma_cma.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/softdc/cm/channel.h"
#include "transport/softdc/cm/fabric.h"
#include "transport/softdc/cm/id.h"
#include "transport/softdc/cm/state_machine.h"
#include "transport/softdc/cm/wire_message.h"
#include "transport/softdc/config/dials.h"

namespace sluice::verbs {
struct VerbsApi;
}  // namespace sluice::verbs

namespace sluice::softdc::cm {

// As in the kernel: a request or disconnect request is sent 16 times, 6.4 s apart, so 102 s in all. These are
// the defaults of the dials.
constexpr int64_t kRetryNs = Dials::Cm{}.retry_ns;
constexpr uint32_t kMaxAttempts = Dials::Cm{}.max_attempts;

// The peer process accepted the connection and closed it without an answer: the engine retries soon, a few
// times.
constexpr int64_t kQuickRetryNs = 10'000'000;
constexpr uint32_t kMaxUnanswered = 3;

// Time for a peer application to answer before the engine sends the request again (the kernel's MRA).
constexpr int64_t kApplicationNs = 68'719'476'736;

constexpr uint32_t kDefaultBacklog = 1024;
// Maximum number of wires that have sent no REQ yet. Further wires are closed.
constexpr size_t kMaxUnidentifiedWires = 1024;
// Time within which a new wire must send its REQ.
constexpr int64_t kFirstMessageNs = 30'000'000'000;

// The device of all ids. The functions and `verbs` serve cm.h. The functions are called without the lock of
// the engine.
struct DeviceHooks {
  // If it returns nullptr, calls fail with ENODEV. Empty: ids have no verbs.
  std::function<ibv_context*()> context;
  std::function<ibv_pd*()> pd;
  uint64_t node_guid = 0;                  // network byte order
  const verbs::VerbsApi* verbs = nullptr;  // for rdma_create_qp, which fails with ENODEV without it
  RoceV1 roce_v1 = RoceV1::kNone;          // Dials::Port
  // The same for the second device. Empty: there is no second device.
  std::function<ibv_context*()> second_context;
  std::function<ibv_pd*()> second_pd;
  ibv_mtu path_mtu = IBV_MTU_4096;
};

struct EngineCounters {
  uint64_t garbage_messages = 0;  // refused by DecodeMessage, or too long
  // Above kMaxUnidentifiedWires, or without REQ for kFirstMessageNs.
  uint64_t refused_wires = 0;
  uint64_t ignored_messages = 0;   // not legal in the id's state
  uint64_t stale_connections = 0;  // REQs and REPs with a queue pair number in use
  uint64_t backlog_drops = 0;
};

// State of an id, for observers that check which queue pair numbers are known where.
struct IdState {
  uint64_t serial = 0;  // never reused
  State state = State::kIdle;
  uint32_t local_qp_num = 0;  // 0: not known yet
  uint32_t peer_qp_num = 0;
  sockaddr_storage peer{};
  int64_t timewait_ns = 0;  // duration of timewait
};

// Result of the kernel's query commands for an id.
struct IdInfo {
  rdma_port_space ps{};
  ibv_qp_type qp_type{};
  sockaddr_storage source{};  // family 0 before the id is bound
  sockaddr_storage destination{};
  bool has_device = false;  // if true, the following members are valid
  uint64_t node_guid = 0;
  Gid local_gid{};
  Gid peer_gid{};
  bool has_path = false;
  uint8_t traffic_class = 0;
  uint8_t packet_lifetime = 0;
  ibv_mtu path_mtu = IBV_MTU_4096;
};

class Engine final : public FabricEvents {
 public:
  Engine(DeviceHooks hooks, Timers* timers, const Dials::Cm& dials = {});
  // Requires that no call is in progress and no channel is open.
  ~Engine() override;

  // Call it before any other call.
  void SetFabric(std::unique_ptr<Fabric> fabric);

  // The same seed gives the same packet sequence numbers. Without a seed, they differ from run to run.
  void SetSeed(uint64_t seed);

  const DeviceHooks& hooks() const { return hooks_; }

  int OpenChannel(std::shared_ptr<Channel>* channel);
  // Destroys all ids of the channel.
  void CloseChannel(Channel* channel);

  // Creates an id. `uid` is returned with the events of the id; 0 means that there are no events. The port
  // space selects the type of queue pair, except for RDMA_PS_IB, which uses `type`.
  int CreateId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type, uint32_t* id);
  // Destroys an id and its unread events. *events_reported: number of events that were read.
  int DestroyId(Channel* channel, uint32_t id, uint32_t* events_reported);
  // Moves an id with its events from one channel to another.
  int MigrateId(Channel* from, uint32_t id, Channel* to, uint32_t* events_reported);

  int Bind(Channel* channel, uint32_t id, const sockaddr* address);
  // `source` may be nullptr.
  int ResolveAddr(Channel* channel, uint32_t id, const sockaddr* source,
                  const sockaddr* destination);
  int ResolveRoute(Channel* channel, uint32_t id);
  int Listen(Channel* channel, uint32_t id, int backlog);
  // Connects with the values of `param`, limited to 24-bit numbers and 7 retries. private_data_len counts
  // even if private_data is null. `qkey` is for datagrams; 0: the well-known qkey.
  int Connect(Channel* channel, uint32_t id, const rdma_conn_param& param, const ibv_ece& ece,
              uint32_t qkey = 0);
  // Accepts a request and sets `uid`, so that the id has events from now on. Without `param`, sends the
  // answer of the active side to a response (rdma_establish). If the call fails because of `param`, the
  // request is rejected.
  int Accept(Channel* channel, uint32_t id, uint64_t uid, const rdma_conn_param* param,
             const ibv_ece& ece, uint32_t qkey = 0);
  int Reject(Channel* channel, uint32_t id, const void* private_data, uint8_t length, int reason);
  int Disconnect(Channel* channel, uint32_t id);
  int Notify(Channel* channel, uint32_t id, ibv_event_type event);
  int SetOption(Channel* channel, uint32_t id, int level, int name, const void* value,
                size_t length);
  int InitQpAttr(Channel* channel, uint32_t id, ibv_qp_attr* attr, int* mask);
  int Query(Channel* channel, uint32_t id, IdInfo* info);

  // Passes the first event to `deliver`, which must not call the engine. If `deliver` returns 0, the event is
  // removed. Otherwise the event stays and that value is returned. EAGAIN: there is no event.
  int TakeEvent(Channel* channel, const std::function<int(const Event&)>& deliver);

  // Removes the device: DEVICE_REMOVAL to each id on it. Afterwards such an id permits only DestroyId. Peers
  // get no message. Listeners at the wildcard address are on no device.
  void RemoveDevice();
  // Reports a new link-layer address of the device (a bond has failed over): ADDR_CHANGE to each id on the
  // device. The id continues unchanged.
  void ChangeAddress();

  EngineCounters counters() const;
  std::vector<IdState> Ids() const;

  // FabricEvents.
  void OnReady(Handle handle) override;

 private:
  // Arguments of an input. Only the members that the action reads are set.
  struct Arguments {
    const sockaddr* source = nullptr;
    const sockaddr* destination = nullptr;
    const rdma_conn_param* param = nullptr;
    ibv_ece ece{};
    uint32_t qkey = 0;
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
  enum class Need : uint8_t { kId, kDevice };

  // engine.cc: common functions. All require mutex_.
  int Find(const Channel* channel, uint32_t number, Need need, Id** id);
  int Call(Channel* channel, uint32_t number, Need need, Input input, Arguments* arguments);
  int Apply(Id* id, Input input, Arguments* arguments);
  void Enter(Id* id, State state);
  void Tell(Id* id, const Row& row, const Arguments& arguments);
  void Push(std::unique_ptr<Event> event);
  QpFacts FactsOf(const Id& id);  // including values that may change during a connection
  void StartTimer(Id* id, int64_t delay_ns);
  void StopTimer(Id* id);
  void OnTimer(uint64_t serial, uint32_t generation);
  Id* NewId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type);
  // Deletes the id and its unread events. Returns the number of read events.
  uint32_t EndId(Id* id);
  void SayGoodbye(Id* id);
  void CloseWire(Id* id);
  void CloseKey(Id* id);
  uint32_t NextPsn();

  // engine_device.cc
  void TellOfDevice(Id* id, rdma_cm_event_type type);

  // engine_actions.cc: the actions of the table. They return an errno value. `next` is an input that follows
  // at once.
  int Do(Action action, Id* id, Arguments* arguments, Input* next, bool* has_next);
  int DoBind(Id* id, const sockaddr* address);
  int DoResolveAddr(Id* id, const Arguments& arguments, Input* next);
  void DoResolveRoute(Id* id, Input* next);
  int DoListen(Id* id, int backlog);
  void BuildReq(Id* id, const Arguments& arguments);
  bool SendReq(Id* id, Arguments* arguments, Input* next);
  void SendRep(Id* id, const Arguments& arguments);
  void TakeRep(Id* id, const WireMessage& rep);
  void SendRej(Handle wire, int reason, const void* private_data, size_t bytes);
  void Send(Handle wire, const WireMessage& message);

  // engine_receive.cc: input from the fabric.
  void AcceptWires(Id* listener);
  void ReceiveFirst(Handle wire);
  void ReceiveMore(Id* id);
  void OnMessage(Id* id, const WireMessage& message);
  void OnReq(Id* listener, Handle wire, const WireMessage& req);
  Id* NewRequest(Id* listener, Handle wire, Handle key, const WireMessage& req);
  void DropUnidentified(Handle wire, bool refused);

  const DeviceHooks hooks_;
  Timers* const timers_;
  const Dials::Cm dials_;
  std::unique_ptr<Fabric> fabric_;

  mutable std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Id>> ids_;
  std::set<uint32_t> free_numbers_;  // unused numbers below the highest
  std::unordered_map<uint64_t, Id*> ids_by_serial_;
  std::unordered_map<Handle, Id*> ids_by_handle_;  // wires, listeners and keys
  std::unordered_map<Handle, UnidentifiedWire> unidentified_;
  uint64_t next_serial_ = 1;
  uint64_t psn_state_;
  EngineCounters counters_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_

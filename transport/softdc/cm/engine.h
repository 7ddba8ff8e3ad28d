// SPDX-License-Identifier: Apache-2.0
//
// Engine: the kernel's connection manager, for one process. It drives the ids' state machines
// (state_machine.h) with calls of the application, messages of other engines (fabric.h) and timers,
// and queues the events. What librdmacm adds to the kernel (rdma_cm_id, acknowledgements, queue
// pairs of an id's own) is not here: there are two faces, cm.h and ucma/, on this one engine.
//
// A call names the channel it comes through and an id by number. What holds for all of them:
// ENOENT: there is no such id; EINVAL: it belongs to another channel, needs a device and has none,
// or is not in a state for the call. They return 0 or an errno value and never block.
//
// Threads       All members; one lock guards everything.
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

// The kernel's: a request or disconnect request is sent 16 times, 6.4 s apart, so 102 s in all.
// These are the defaults of the dials.
constexpr int64_t kRetryNs = Dials::Cm{}.retry_ns;
constexpr uint32_t kMaxAttempts = Dials::Cm{}.max_attempts;

// The peer process took the connection and left without a word: tried again at once, a few times.
constexpr int64_t kQuickRetryNs = 10'000'000;
constexpr uint32_t kMaxUnanswered = 3;

// How long a peer application has before it is asked whether it is still there (the kernel's MRA).
constexpr int64_t kApplicationNs = 68'719'476'736;

constexpr uint32_t kDefaultBacklog = 1024;
constexpr size_t kMaxUnidentifiedWires = 1024;       // connected, no REQ yet; more are turned away
constexpr int64_t kFirstMessageNs = 30'000'000'000;  // until then a wire must have sent its REQ

// The device that all ids are on. The kernel's side knows its GUID; the rest serves cm.h and is
// called without the engine's lock.
struct DeviceHooks {
  std::function<ibv_context*()> context;  // nullptr: calls say ENODEV; empty: ids have no verbs
  std::function<ibv_pd*()> pd;
  uint64_t node_guid = 0;                  // network byte order
  const verbs::VerbsApi* verbs = nullptr;  // for rdma_create_qp, which says ENODEV without
  RoceV1 roce_v1 = RoceV1::kNone;          // Dials::Port
  // Those of the second device; empty: there is none.
  std::function<ibv_context*()> second_context;
  std::function<ibv_pd*()> second_pd;
  ibv_mtu path_mtu = IBV_MTU_4096;
};

struct EngineCounters {
  uint64_t garbage_messages = 0;   // refused by DecodeMessage, or too long
  uint64_t refused_wires = 0;      // beyond kMaxUnidentifiedWires, or silent for kFirstMessageNs
  uint64_t ignored_messages = 0;   // not legal in the id's state
  uint64_t stale_connections = 0;  // REQs and REPs with a queue pair number in use
  uint64_t backlog_drops = 0;
};

// One id as it stands, for those who watch from outside what numbers are known where.
struct IdState {
  uint64_t serial = 0;  // never used again
  State state = State::kIdle;
  uint32_t local_qp_num = 0;  // 0: not said yet
  uint32_t peer_qp_num = 0;
  sockaddr_storage peer{};
  int64_t timewait_ns = 0;  // how long it lasts once it begins
};

// What the kernel's query commands tell about an id.
struct IdInfo {
  rdma_port_space ps{};
  ibv_qp_type qp_type{};
  sockaddr_storage source{};  // family 0 before it is bound
  sockaddr_storage destination{};
  bool has_device = false;  // then the rest counts
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
  // No call may be in progress and no channel open.
  ~Engine() override;

  // Before any other call.
  void SetFabric(std::unique_ptr<Fabric> fabric);

  // Same seed, same packet sequence numbers. Otherwise they differ from run to run.
  void SetSeed(uint64_t seed);

  const DeviceHooks& hooks() const { return hooks_; }

  int OpenChannel(std::shared_ptr<Channel>* channel);
  // Ends all its ids as if each were destroyed.
  void CloseChannel(Channel* channel);

  // `uid` comes back with the id's events; 0 means that there are none. The port space decides
  // about the type of queue pair, but for RDMA_PS_IB.
  int CreateId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type, uint32_t* id);
  // Events that nobody has got are dropped; says how many were got.
  int DestroyId(Channel* channel, uint32_t id, uint32_t* events_reported);
  // Takes an id, with its events, from one channel to another.
  int MigrateId(Channel* from, uint32_t id, Channel* to, uint32_t* events_reported);

  int Bind(Channel* channel, uint32_t id, const sockaddr* address);
  // `source` may be nullptr.
  int ResolveAddr(Channel* channel, uint32_t id, const sockaddr* source,
                  const sockaddr* destination);
  int ResolveRoute(Channel* channel, uint32_t id);
  int Listen(Channel* channel, uint32_t id, int backlog);
  // Only what `param` says, cut to 24 bits and 7 retries. private_data_len counts even if
  // private_data is null. `qkey` is for datagrams; 0: the well-known one.
  int Connect(Channel* channel, uint32_t id, const rdma_conn_param& param, const ibv_ece& ece,
              uint32_t qkey = 0);
  // Without `param` it is the active side's answer to a response (rdma_establish). With it `uid`
  // becomes the id's, so that from now on there are events. A refused accept rejects the request.
  int Accept(Channel* channel, uint32_t id, uint64_t uid, const rdma_conn_param* param,
             const ibv_ece& ece, uint32_t qkey = 0);
  int Reject(Channel* channel, uint32_t id, const void* private_data, uint8_t length, int reason);
  int Disconnect(Channel* channel, uint32_t id);
  int Notify(Channel* channel, uint32_t id, ibv_event_type event);
  int SetOption(Channel* channel, uint32_t id, int level, int name, const void* value,
                size_t length);
  int InitQpAttr(Channel* channel, uint32_t id, ibv_qp_attr* attr, int* mask);
  int Query(Channel* channel, uint32_t id, IdInfo* info);

  // Gives the first event to `deliver`, which must not call the engine; when it returns 0 the event
  // is taken, else it stays and that value is returned. EAGAIN: there is none.
  int TakeEvent(Channel* channel, const std::function<int(const Event&)>& deliver);

  // The device is pulled out: DEVICE_REMOVAL to each id that was on it, which is fit for DestroyId
  // only from now on. Nothing is said to peers. Listeners at the wildcard address are on no device.
  void RemoveDevice();
  // The link-layer address behind the device's addresses is another (a bond has failed over):
  // ADDR_CHANGE to each id on the device, which goes on as it is.
  void ChangeAddress();

  EngineCounters counters() const;
  std::vector<IdState> Ids() const;

  // FabricEvents.
  void OnReady(Handle handle) override;

 private:
  // What an input brings along; only what its action reads is set.
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

  // engine.cc: the machinery. All under mutex_.
  int Find(const Channel* channel, uint32_t number, Need need, Id** id);
  int Call(Channel* channel, uint32_t number, Need need, Input input, Arguments* arguments);
  int Apply(Id* id, Input input, Arguments* arguments);
  void Enter(Id* id, State state);
  void Tell(Id* id, const Row& row, const Arguments& arguments);
  void Push(std::unique_ptr<Event> event);
  QpFacts FactsOf(const Id& id);  // with what may change under a connection
  void StartTimer(Id* id, int64_t delay_ns);
  void StopTimer(Id* id);
  void OnTimer(uint64_t serial, uint32_t generation);
  Id* NewId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type);
  uint32_t EndId(Id* id);  // deletes it and its unread events; how many events were got
  void SayGoodbye(Id* id);
  void CloseWire(Id* id);
  void CloseKey(Id* id);
  uint32_t NextPsn();

  // engine_device.cc
  void TellOfDevice(Id* id, rdma_cm_event_type type);

  // engine_actions.cc: what rows of the table do. Return an errno value; `next` is an input that
  // follows at once.
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

  // engine_receive.cc: what comes from the fabric.
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
  std::set<uint32_t> free_numbers_;  // below ids_' end
  std::unordered_map<uint64_t, Id*> ids_by_serial_;
  std::unordered_map<Handle, Id*> ids_by_handle_;  // wires, listeners and keys
  std::unordered_map<Handle, UnidentifiedWire> unidentified_;
  uint64_t next_serial_ = 1;
  uint64_t psn_state_;
  EngineCounters counters_;
};

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_ENGINE_H_

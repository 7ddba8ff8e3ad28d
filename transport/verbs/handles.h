// SPDX-License-Identifier: Apache-2.0
//
// Move-only owners of verbs and RDMA_CM objects, and the functions that create them.
//
// Ownership     A handle frees its object through the table that created it. The owner keeps the order of the man pages: QPs before SRQs
//               and CQs, those before PDs, MRs before their memory.
// Threads       Any, one at a time. Creation and destruction may block in kernel or firmware: a poller runs them in Commands.
// Errors        Creation: a status with the call and the errno. Destruction reports nothing: it fails only if the order was wrong (a
//               defect of Sluice) or the device has failed.
#ifndef SLUICE_TRANSPORT_VERBS_HANDLES_H_
#define SLUICE_TRANSPORT_VERBS_HANDLES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::verbs {

template <typename T, auto Free>
class Handle {
 public:
  Handle() = default;
  Handle(const VerbsApi* api, T* object) : api_(api), object_(object) {}
  Handle(Handle&& other) noexcept
      : api_(other.api_), object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      api_ = other.api_;
      object_ = std::exchange(other.object_, nullptr);
    }
    return *this;
  }
  ~Handle() { reset(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  const VerbsApi* api() const { return api_; }

  void reset() {
    if (object_ != nullptr) (api_->*Free)(std::exchange(object_, nullptr));
  }
  // Returns the object without freeing it. The caller owns it.
  T* release() { return std::exchange(object_, nullptr); }

 private:
  const VerbsApi* api_ = nullptr;
  T* object_ = nullptr;
};

using Context = Handle<ibv_context, &VerbsApi::close_device>;
using Pd = Handle<ibv_pd, &VerbsApi::dealloc_pd>;
using Mr = Handle<ibv_mr, &VerbsApi::dereg_mr>;
using CompChannel = Handle<ibv_comp_channel, &VerbsApi::destroy_comp_channel>;
using Cq = Handle<ibv_cq, &VerbsApi::destroy_cq>;
using Srq = Handle<ibv_srq, &VerbsApi::destroy_srq>;
using Ah = Handle<ibv_ah, &VerbsApi::destroy_ah>;
using EventChannel = Handle<rdma_event_channel, &VerbsApi::cm_destroy_event_channel>;
using CmId = Handle<rdma_cm_id, &VerbsApi::cm_destroy_id>;

// A QP with the interfaces of its data path. `ex` and `dv` are null for a DCT.
struct Qp {
  Handle<ibv_qp, &VerbsApi::destroy_qp> qp;
  ibv_qp_ex* ex = nullptr;
  mlx5dv_qp_ex* dv = nullptr;

  ibv_qp* get() const { return qp.get(); }
  uint32_t number() const { return qp->qp_num; }
};

// man ibv_open_device, ibv_alloc_pd, ibv_reg_mr, ibv_create_comp_channel, ibv_create_cq,
// ibv_create_srq.
absl::StatusOr<Context> OpenContext(const VerbsApi& api, ibv_device* device);
absl::StatusOr<Pd> AllocPd(const VerbsApi& api, ibv_context* context);
absl::StatusOr<Mr> RegisterMemory(const VerbsApi& api, ibv_pd* pd, void* address, size_t size_bytes,
                                  int access);
absl::StatusOr<CompChannel> CreateCompChannel(const VerbsApi& api, ibv_context* context);
// `channel` may be null.
absl::StatusOr<Cq> CreateCq(const VerbsApi& api, ibv_context* context, uint32_t depth,
                            ibv_comp_channel* channel);
absl::StatusOr<Srq> CreateSrq(const VerbsApi& api, ibv_pd* pd, uint32_t depth);

// An RC queue pair that is used only for its number, and stays in RESET. Each provider supports it (man ibv_create_qp).
using IdleQp = Handle<ibv_qp, &VerbsApi::destroy_qp>;
absl::StatusOr<IdleQp> CreateIdleQp(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq);

struct DciOptions {
  uint32_t send_depth = 256;
  uint32_t max_inline_bytes = 0;
  bool streams = false;  // uses the two logarithms below
  uint8_t log_concurrent = 0;
  uint8_t log_errored = 0;
};
// Creates a DCI in state RESET, with builders for SEND, SEND_IMM, WRITE, WRITE_IMM and READ (man mlx5dv_create_qp, ibv_wr_post).
absl::StatusOr<Qp> CreateDci(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* cq,
                             const DciOptions& options);
// Creates a DCT in state RESET. Its number is valid only from RTR on.
absl::StatusOr<Qp> CreateDct(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* cq,
                             ibv_srq* srq, uint64_t access_key);

struct PathOptions {
  uint8_t port = 1;
  uint8_t sgid_index = 0;
  uint16_t pkey_index = 0;
  // nullopt: 0 in queue pairs, and the value of RDMA_CM in address handles.
  std::optional<uint8_t> traffic_class;  // of the GRH or the IP header
  std::optional<uint8_t> service_level;  // on RoCE the priority
  ibv_mtu mtu = IBV_MTU_1024;
  uint8_t min_rnr_timer = 12;  // of a DCT or RC queue pair: 12 is 0.64 ms (man ibv_modify_qp)
  // Of a DCI or RC queue pair. The ack timeout is 4.096 µs * 2^timeout. A request is sent at most retry_count + 1 times. rnr_retry 7 means
  // without limit.
  uint8_t timeout = 14;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 6;
  uint8_t max_rd_atomic = 1;
  uint8_t flow_labels = 1;  // for each destination, in address handles on RoCE
};
// Returns the address vector of this port for a queue pair. For an address handle, the caller adds the destination.
ibv_ah_attr AddressVector(const PathOptions& path);
// Sets the traffic class and the service level that `path` has.
void SetClass(const PathOptions& path, ibv_ah_attr* vector);
// Moves a DCI from RESET through INIT and RTR to RTS, with the exact masks that the kernel accepts. If `ece` is not null, it is set in
// INIT, so that the move to RTR applies it (man ibv_set_ece).
absl::Status ActivateDci(const VerbsApi& api, ibv_qp* dci, const PathOptions& path,
                         const ibv_ece* ece = nullptr);
absl::Status ResetDci(const VerbsApi& api, ibv_qp* dci);
// Moves a DCT from RESET through INIT to RTR. Its number is valid afterwards. `access`: remote rights of the whole DCT.
absl::Status ActivateDct(const VerbsApi& api, ibv_qp* dct, const PathOptions& path, int access);
// Returns the state that the device reports (man ibv_query_qp).
absl::StatusOr<ibv_qp_state> QueryState(const VerbsApi& api, ibv_qp* qp);

// Guarantee of the device about the order in which a CPU sees the bytes of one incoming request. It holds for memory that is not
// registered with relaxed ordering, and not across two requests.
enum class DataOrder : uint8_t {
  kNone,
  kBlocks128,     // bytes of each aligned block of 128 are in order
  kWholeMessage,  // all bytes are in order
};
std::string_view Name(DataOrder order);
// Returns the data order of `qp`, the queue pair through which the data arrives. That is a DCT in RTR for `opcode` of peers, or a DCI in
// RTS for its own READs.
DataOrder QueryDataOrder(const VerbsApi& api, ibv_qp* qp, ibv_wr_opcode opcode);

}  // namespace sluice::verbs

#endif  // SLUICE_TRANSPORT_VERBS_HANDLES_H_

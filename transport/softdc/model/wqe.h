// SPDX-License-Identifier: Apache-2.0
//
// One send WQE of a software queue, the additional data of some operations, and the state of a stream that decides the result of its WQEs.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_

#include <infiniband/verbs.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/softdc/model/fabric.h"

namespace sluice::softdc {

// Vendor error codes that ConnectX devices are seen to report with these statuses (docs/facts.md,
// "Errors").
inline constexpr uint32_t kVendorErrorLocalProtection = 0x51;
inline constexpr uint32_t kVendorErrorLocalLength = 0x68;
inline constexpr uint32_t kVendorErrorRetryExceeded = 0x81;
inline constexpr uint32_t kVendorErrorRnrExceeded = 0x87;
inline constexpr uint32_t kVendorErrorRemoteAccess = 0x88;
inline constexpr uint32_t kVendorErrorRemoteInvalidRequest = 0x8a;
inline constexpr uint32_t kVendorErrorRemoteOperation = 0x89;
inline constexpr uint32_t kVendorErrorFlushed = 0xf5;

enum class WqeState : uint8_t {
  kPosted,   // built, not examined
  kWaiting,  // cannot run now; its Requester knows when to retry
  kDone,     // has its status; its CQE leaves after all earlier WQEs have a status
  kEmitted,  // its CQE has left before its turn in the queue (CqeOrder::kPerStream)
};

// A new WQE is all zeros (Clear).
struct alignas(16) Wqe {
  uint64_t wr_id = 0;
  uint64_t remote_address = 0;
  uint64_t key = 0;   // DC key, Q_Key, or ConnectedKey of the sender (arrival.h)
  uint32_t rkey = 0;  // or the key that SEND_WITH_INV and LOCAL_INV invalidate
  __be32 imm_data = 0;
  uint32_t target_number = 0;
  uint32_t length_bytes = 0;
  NodeId node = kNoNode;  // node of the destination
  uint16_t stream_id = 0;
  uint16_t num_sge = 0;  // entries in the queue's SGE array for this slot
  // From here to `status`: one word, which StateWord reads at once.
  uint8_t opcode = 0;  // ibv_wr_opcode
  uint8_t flags = 0;   // IBV_SEND_SIGNALED | SOLICITED | FENCE
  bool inlined = false;
  WqeState state = WqeState::kPosted;
  bool awaits_answer = false;  // waits for an answer about the target, not for a time
  bool cancelled = false;      // does nothing and succeeds (mlx5dv_qp_cancel_posted_send_wrs)
  bool staged = false;         // its bytes are in a MkeyStage
  uint8_t status = 0;          // ibv_wc_status, once kDone
  uint8_t rnr_tries = 0;
  bool quiet = false;         // completes only with an error, even if it is signalled
  uint8_t service_level = 0;  // of the address handle, for the receive completion
  bool taken_back = false;    // LOCAL_INV: the window's key is revoked, copies may be in progress
  uint32_t vendor_error = 0;
  // Used only by the Requester.
  int64_t next_try_ns = 0;
  int64_t answer_until_ns = 0;  // deadline of an awaited answer; 0: no answer is awaited
  int64_t give_up_ns = 0;       // deadline of a response, then RETRY_EXC_ERR; 0: none is awaited
};

// Written out because the compiler turns `*wqe = Wqe{}` into a string instruction, which takes longer to start than all of this.
inline void Clear(Wqe* wqe) {
  using Vector [[gnu::vector_size(16), gnu::may_alias]] = uint64_t;
  auto* const vectors = reinterpret_cast<Vector*>(wqe);
  static_assert(sizeof(Wqe) == 6 * sizeof(Vector));
  vectors[0] = vectors[1] = vectors[2] = vectors[3] = vectors[4] = vectors[5] = Vector{};
}

// Returns the fields of a WQE from `opcode` to `status` as one word, so that several are compared at once.
inline uint64_t StateWord(const Wqe& wqe) {
  static_assert(offsetof(Wqe, opcode) % sizeof(uint64_t) == 0 &&
                offsetof(Wqe, status) == offsetof(Wqe, opcode) + sizeof(uint64_t) - 1);
  uint64_t word;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&wqe) + offsetof(Wqe, opcode),
              sizeof(word));
  return word;
}
// The fields of a state word, for StateBits.
struct StateFields {
  uint8_t opcode = 0;
  uint8_t flags = 0;
  uint8_t inlined = 0;
  WqeState state = WqeState::kPosted;
  uint8_t awaits_answer = 0;
  uint8_t cancelled = 0;
  uint8_t staged = 0;
  uint8_t status = 0;
};
consteval uint64_t StateBits(const StateFields& fields) { return std::bit_cast<uint64_t>(fields); }
// Sets bits with one store of the whole word. If a single byte were stored just before the word is read, the reader would have to wait.
inline void SetStateBits(Wqe* wqe, uint64_t bits) {
  const uint64_t word = StateWord(*wqe) | bits;
  std::memcpy(reinterpret_cast<std::byte*>(wqe) + offsetof(Wqe, opcode), &word, sizeof(word));
}

// Additional operands of some operations: one per slot, valid for those opcodes only.
struct AtomicOperands {
  uint64_t compare_add;
  uint64_t swap;
};
struct BindOperands {
  uint32_t window_rkey;
  uint32_t new_rkey;
  ibv_mw_type type;
  ibv_mw_bind_info info;
};
struct DatagramOperands {
  ibv_gid source;
  ibv_gid destination;
  uint32_t flow_label;
  uint8_t traffic_class;
  uint8_t hop_limit;
  bool has_grh;
};
union WqeOperands {
  AtomicOperands atomic;
  BindOperands bind;
  DatagramOperands datagram;
};

// Zero bytes are the state of a stream that was never used (ZeroedArray).
struct StreamState {
  bool errored = false;
  uint32_t waiting = 0;       // WQEs that are kWaiting
  uint64_t held_in_pass = 0;  // of EmitPerStream: an earlier WQE holds the CQEs of this stream
};

inline bool IsAtomic(uint8_t opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
// Returns whether the operation takes a receive WQE and places its bytes there.
inline bool IsSend(uint8_t opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_SEND_WITH_INV;
}
// Returns whether the own device executes the operation without a message.
inline bool IsLocal(uint8_t opcode) {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_DRIVER1;
}
// Returns whether the operation writes into the memory that its own SGEs name.
inline bool ReturnsData(uint8_t opcode) { return opcode == IBV_WR_RDMA_READ || IsAtomic(opcode); }

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_

// SPDX-License-Identifier: Apache-2.0
//
// One send WQE of a software queue, and the per-stream state that decides what becomes of it.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc {

// Vendor error codes that ConnectX devices are seen to report with these statuses (docs/facts.md,
// "Errors").
inline constexpr uint32_t kVendorErrorLocalProtection = 0x51;
inline constexpr uint32_t kVendorErrorRetryExceeded = 0x81;
inline constexpr uint32_t kVendorErrorRnrExceeded = 0x87;
inline constexpr uint32_t kVendorErrorRemoteAccess = 0x88;
inline constexpr uint32_t kVendorErrorRemoteInvalidRequest = 0x8a;
inline constexpr uint32_t kVendorErrorRemoteOperation = 0x89;
inline constexpr uint32_t kVendorErrorFlushed = 0xf5;

enum class WqeState : uint8_t {
  kPosted,   // built, not looked at
  kWaiting,  // cannot run now; the Loop thread tries again at next_try_ns
  kDone,     // has its status; its CQE leaves when all before it in the queue have theirs
};

struct Wqe {
  uint64_t wr_id = 0;
  uint64_t remote_address = 0;
  uint64_t dc_key = 0;
  uint32_t rkey = 0;
  __be32 imm_data = 0;
  uint32_t target_number = 0;  // DCTN
  uint32_t length_bytes = 0;
  uint16_t stream_id = 0;
  uint16_t num_sge = 0;  // entries in the queue's SGE array for this slot
  uint8_t opcode = 0;    // ibv_wr_opcode
  uint8_t flags = 0;     // IBV_SEND_SIGNALED | SOLICITED | FENCE
  bool inlined = false;
  bool reachable = false;  // the AH names an address of this host
  WqeState state = WqeState::kPosted;
  bool asking = false;  // waits for an answer about the target, not for a time
  uint8_t rnr_tries = 0;
  uint8_t status = 0;  // ibv_wc_status, once kDone
  uint32_t vendor_error = 0;
  int64_t next_try_ns = 0;
  int64_t asking_until_ns = 0;  // when an answer that does not come counts as none; 0: not asking
  int64_t give_up_ns = 0;  // when no response becomes RETRY_EXC_ERR; 0: not waiting for a response
};

struct StreamState {
  bool errored = false;
  uint32_t outstanding = 0;  // WQEs not yet kDone
  uint32_t waiting = 0;      // of these, kWaiting
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_WQE_H_

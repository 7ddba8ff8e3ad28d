// SPDX-License-Identifier: Apache-2.0
//
// Sender: the asking side of a probe: one DCI, its CQ and a piece of memory. Every wait is bounded.
//
// Ownership     Its creator; it goes before the Nic that it was made from.
// Threads       One.
#ifndef SLUICE_TOOLS_HARDWARE_SENDER_H_
#define SLUICE_TOOLS_HARDWARE_SENDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hardware/nic.h"
#include "tools/hardware/target.h"

namespace sluice::hardware {

inline constexpr uint32_t kNoKey = 0xffffff01;
inline constexpr absl::Duration kLongWait = absl::Seconds(10);

struct SenderOptions {
  bool streams = false;
  uint8_t log_concurrent = 0;
  uint8_t log_errored = 0;
  uint32_t send_depth = 128;
  uint8_t timeout = 12;  // 4.096 us * 2^timeout
  uint8_t retry_count = 1;
  uint32_t mtu_bytes = 0;  // 0: as Nic::Path()
};

struct Request {
  ibv_wr_opcode opcode = IBV_WR_SEND;  // SEND, RDMA_WRITE or RDMA_READ
  uint64_t id = 0;
  uint32_t bytes = 8;
  uint16_t stream = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  bool bad_key = false;  // a remote key that nobody has
};

class Sender {
 public:
  static absl::StatusOr<std::unique_ptr<Sender>> Create(const Nic& nic,
                                                        const SenderOptions& options = {});
  ~Sender();
  // What ibv_wr_complete says: 0 or an errno.
  int Post(const TargetAddress& to, const Request& request);
  std::optional<ibv_wc> Await(absl::Duration timeout = kLongWait);
  // Posts and waits. DEADLINE_EXCEEDED: no completion came.
  absl::StatusOr<ibv_wc> Do(const TargetAddress& to, const Request& request);
  absl::StatusOr<ibv_qp_state> State() const;
  absl::Status ToError();
  absl::Status Recover();

  ibv_qp* qp() const { return dci_.get(); }
  std::byte* memory() const { return memory_->data(); }
  const Memory& piece() const { return *memory_; }
  absl::StatusOr<ibv_ah*> AhTo(const TargetAddress& to);

 private:
  explicit Sender(const Nic& nic) : nic_(nic) {}

  const Nic& nic_;
  verbs::PathOptions path_;
  std::unique_ptr<Memory> memory_;
  verbs::Cq cq_;
  verbs::Qp dci_;
  std::map<std::string, verbs::Ah> ahs_;
};

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_SENDER_H_

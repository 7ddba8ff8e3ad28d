// SPDX-License-Identifier: Apache-2.0
//
// Target: the answering side of a probe: a DCT with receives and a piece of memory, in this process or at the peer.
//
// Ownership     Its creator; it goes before the Nic that it was made from.
// Threads       One; a watch runs on threads of the target's own.
#ifndef SLUICE_TOOLS_HARDWARE_TARGET_H_
#define SLUICE_TOOLS_HARDWARE_TARGET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/hardware/nic.h"

namespace sluice::hardware {

inline constexpr uint64_t kDcKey = 0x1234567890abcdef;

struct TargetOptions {
  uint32_t receives = 64;         // posted at the start; 0 to 4096
  uint32_t receive_bytes = 4096;  // of each; 1 to 8192
  uint32_t mtu_bytes = 0;         // path MTU; 0: as Nic::Path()
  uint32_t cqe = 1024;            // of the receive CQ; 1 to 65536
  bool other_gid = false;  // the DCT has another GID of its port than the one that address() tells
};

// What a sender has to know.
struct TargetAddress {
  ibv_gid gid{};
  uint16_t lid = 0;
  uint32_t dctn = 0;
  uint64_t dc_key = kDcKey;
  uint64_t memory = 0;
  uint32_t rkey = 0;
  uint32_t cqe = 0;  // that the receive CQ really has
};

struct Receipt {
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t bytes = 0;
};

// What was seen of messages whose words all carry the number of the message.
struct WatchCount {
  uint64_t seen = 0;         // messages whose last word was seen to change
  uint64_t torn = 0;         // of those: an older word was still before it
  uint64_t torn_blocks = 0;  // of those: in the aligned 128 bytes of the last word
};

class Target {
 public:
  virtual ~Target() = default;
  const TargetAddress& address() const { return address_; }
  virtual absl::Status PostReceives(uint32_t count) = 0;
  // The next receive completion; nothing: none came in time.
  virtual absl::StatusOr<std::optional<Receipt>> AwaitReceive(absl::Duration timeout) = 0;
  // Watches the last word of `bytes` at the start of the memory, while another thread keeps the memory bus busy.
  virtual absl::Status BeginWatch(uint32_t bytes) = 0;
  virtual absl::StatusOr<WatchCount> EndWatch() = 0;

 protected:
  TargetAddress address_;
};

// The verbs part, and a piece of memory for either side.
class Memory {
 public:
  static constexpr size_t kBytes = size_t{512} << 10;  // an ordinary user may lock 8 MiB in all
  static absl::StatusOr<std::unique_ptr<Memory>> Create(const Nic& nic);
  ~Memory();
  std::byte* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  ibv_mr* mr() const { return mr_.get(); }

 private:
  Memory() = default;
  std::byte* data_ = nullptr;
  int fd_ = -1;
  verbs::Mr mr_;
};

class LocalTarget final : public Target {
 public:
  // INVALID_ARGUMENT for options out of range.
  static absl::StatusOr<std::unique_ptr<Target>> Create(const Nic& nic,
                                                        const TargetOptions& options);
  ~LocalTarget() override;
  absl::Status PostReceives(uint32_t count) override;
  absl::StatusOr<std::optional<Receipt>> AwaitReceive(absl::Duration timeout) override;
  absl::Status BeginWatch(uint32_t bytes) override;
  absl::StatusOr<WatchCount> EndWatch() override;

 private:
  LocalTarget() = default;
  void Watch(uint32_t bytes);
  void LoadMemory();

  TargetOptions options_;
  std::unique_ptr<Memory> memory_;
  verbs::Cq cq_;
  verbs::Srq srq_;
  verbs::Qp dct_;
  uint32_t next_receive_ = 0;
  std::atomic<bool> watching_{false};
  WatchCount count_;
  std::thread watcher_, loader_;
};

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_TARGET_H_

// SPDX-License-Identifier: Apache-2.0
//
// DcSide: the minimum that a program needs to echo messages with plain verbs over DC: a DCI, a DCT with its SRQ, two CQs and one slab. The
// overhead of Sluice is measured against it.
//
// Threads       One.
// Errors        End the program: a benchmark of a failed device has no result.
#ifndef SLUICE_BENCHMARKS_DC_SIDE_H_
#define SLUICE_BENCHMARKS_DC_SIDE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/device/device.h"
#include "transport/memory/slab.h"
#include "transport/verbs/handles.h"

namespace sluice::benchmarks {

// Where a DcSide is to be reached; it travels in the first bytes of a message.
struct DcAddress {
  uint64_t dctn = 0;
  uint64_t key = 0;
};

// Ends the program with the status's text if it is not OK.
void CheckOk(const absl::Status& status);
void Check(bool good, const char* what);

class DcSide {
 public:
  static constexpr uint32_t kBufferBytes = 256;
  static constexpr uint32_t kReceives = 1024;
  static constexpr uint32_t kSends = 256;
  static constexpr uint32_t kSignalEvery = 16;

  explicit DcSide(uint64_t key);

  DcAddress address() const { return {dct_.number(), key_}; }
  // Buffers to send from, used in turn; a buffer comes round again long after its send has
  // completed.
  std::byte* send_buffer() { return slab_.data() + (next_send_ % kSends) * kBufferBytes; }
  // Adds one SEND of `length_bytes` of send_buffer() to the open batch.
  void Add(const DcAddress& to, uint32_t length_bytes);
  // Rings the doorbell for what was added, and takes completions of sends.
  void Ring();
  // Received messages, at most `limit`; their buffers stay valid until Repost().
  int Poll(ibv_wc* completions, int limit);
  const std::byte* received(const ibv_wc& wc) const { return slab_.data() + wc.wr_id; }
  // Gives the buffers back, in batches of kSignalEvery.
  void Repost(const ibv_wc* completions, int count);

 private:
  void Reap();

  const uint64_t key_;
  std::unique_ptr<device::Device> device_;
  memory::Slab slab_;
  verbs::Cq send_cq_;
  verbs::Cq receive_cq_;
  verbs::Srq srq_;
  verbs::Qp dct_;
  verbs::Qp dci_;
  verbs::Ah ah_;
  bool open_ = false;
  uint32_t next_send_ = 0;
  uint32_t in_flight_ = 0;
  ibv_recv_wr refill_[kSignalEvery] = {};
  ibv_sge refill_sge_[kSignalEvery] = {};
  uint32_t refill_count_ = 0;
};

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_DC_SIDE_H_

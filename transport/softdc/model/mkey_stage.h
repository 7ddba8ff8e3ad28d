// SPDX-License-Identifier: Apache-2.0
//
// A message whose local SGEs name indirect keys, between the moment at which the own device has looked at
// them and its completion. Requesters see plain bytes: an inline message to send, or one SGE to read into.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_STAGE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_STAGE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/softdc/model/mkey_transfer.h"

namespace sluice::softdc {

class Context;

// The memory of the own process.
class LocalMkeyMemory : public MkeyMemory {
 public:
  explicit LocalMkeyMemory(Context& context) : context_(context) {}
  MkeyStatus Locate(uint64_t address, uint64_t length_bytes, uint32_t lkey, uint32_t access,
                    uint32_t pd) override;
  bool Read(uint64_t address, uint32_t lkey, std::span<std::byte> to) override;
  bool Write(uint64_t address, uint32_t lkey, std::span<const std::byte> from) override;

 private:
  Context& context_;
};

class MkeyStage {
 public:
  // Bytes of a message to be sent, all of them, as they go on the wire. False: a key, range or right is
  // missing.
  bool Gather(Context& context, uint32_t pd, std::span<const ibv_sge> sges);
  // Room for the bytes of a message that comes back.
  bool Prepare(Context& context, uint32_t pd, std::span<const ibv_sge> sges);
  // They have come.
  void Scatter(Context& context, uint32_t pd);
  // Leaves the mismatches that were found with their keys, to be seen when that CQ is polled. False: there
  // were none.
  bool Record(Context& context, uint32_t cq_id) const;

  std::span<std::byte> bytes() { return bytes_; }

 private:
  void Note(uint32_t key, const std::optional<signature::Mismatch>& mismatch) {
    if (mismatch) mismatches_.emplace_back(key, *mismatch);
  }

  std::vector<std::byte> bytes_;
  std::vector<ibv_sge> sges_;  // of the user
  std::vector<std::pair<uint32_t, signature::Mismatch>> mismatches_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_STAGE_H_

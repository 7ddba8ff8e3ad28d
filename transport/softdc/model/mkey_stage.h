// SPDX-License-Identifier: Apache-2.0
//
// A message whose local SGEs name indirect keys, from the check by the own device until its completion. Requesters see plain bytes: an
// inline message to send, or one SGE to read into.
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

// Memory of this process.
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
  // Collects all bytes of an outgoing message, as on the wire. Returns false if a key, range or right is missing.
  bool Gather(Context& context, uint32_t pd, std::span<const ibv_sge> sges);
  // Checks the SGEs of a message that returns data, and allocates memory for the data. Returns false in the same cases as Gather.
  bool Prepare(Context& context, uint32_t pd, std::span<const ibv_sge> sges);
  // Copies the returned data to the SGEs.
  void Scatter(Context& context, uint32_t pd);
  // Records the mismatches that were found in their keys. The program sees them when CQ `cq_id` is polled. Returns false if there were
  // none.
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

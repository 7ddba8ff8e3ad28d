// SPDX-License-Identifier: Apache-2.0
//
// TargetKeys: the indirect keys of the context at which a message has arrived, as a remote key or in a
// receive buffer. Gathers and scatters through them. Records signature mismatches for the process that polls
// the target's CQ. All bytes behind a key land in one piece, in order.
//
// Ownership     Created for one message.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_TARGET_KEYS_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_TARGET_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/softdc/model/mkey_transfer.h"
#include "transport/softdc/model/responder.h"

namespace sluice::softdc::sim {

class TargetKeys {
 public:
  TargetKeys(Context& context, Responder& responder);

  // Returns whether a transfer of that range is permitted.
  bool Allows(uint32_t key, uint64_t start, uint64_t wire_bytes, uint32_t access);
  bool Write(uint32_t key, uint64_t start, std::span<const std::byte> wire, uint32_t access);
  bool Read(uint32_t key, uint64_t start, uint64_t wire_bytes, std::vector<std::byte>* wire);

 private:
  MkeyStatus Load(uint32_t key, uint32_t access, MkeyConfig* config);
  void Record(uint32_t key, const std::optional<signature::Mismatch>& mismatch);

  Context& context_;
  MkeyTableArea& table_;
  const uint32_t pd_;
  const uint32_t cq_id_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_TARGET_KEYS_H_

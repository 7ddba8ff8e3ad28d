// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/signature/block_signature.h"

#include <algorithm>

namespace sluice::softdc::signature {

uint8_t DefaultCopyMask(const Domain& memory, const Domain& wire) {
  if (!SameStructure(memory, wire)) return 0;
  if (!IsT10Dif(wire.kind)) return kCrc32Mask;
  uint8_t mask = 0;
  if (memory.kind == wire.kind && memory.seed == wire.seed) mask |= kGuardMask;
  if (memory.application_tag == wire.application_tag) mask |= kApplicationTagMask;
  if (memory.reference_tag == wire.reference_tag) mask |= kReferenceTagMask;
  return mask;
}

uint64_t DomainBytes(const Domain& domain, uint64_t data_bytes) {
  return data_bytes + data_bytes / BlockBytes(domain) * SignatureBytes(domain);
}

uint64_t DataBytes(const Domain& domain, uint64_t domain_bytes) {
  const uint64_t block_bytes = BlockBytes(domain);
  const uint64_t both_bytes = block_bytes + SignatureBytes(domain);
  return domain_bytes / both_bytes * block_bytes + std::min(domain_bytes % both_bytes, block_bytes);
}

}  // namespace sluice::softdc::signature

// SPDX-License-Identifier: Apache-2.0
//
// Converts the attributes of mlx5dv_wr_set_mkey_sig_block(3) to a BlockSignature, with the checks of the driver.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SIGNATURE_ATTR_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SIGNATURE_ATTR_H_

#include <infiniband/mlx5dv.h>

#include "transport/softdc/signature/block_signature.h"
#include "transport/softdc/signature/transform.h"

namespace sluice::softdc {

// Returns the capabilities of a device with signatures: all block sizes, T10-DIF with both guards, CRC32 and CRC32C.
mlx5dv_sig_caps SignatureCaps();

// 0 or EINVAL.
int ReadSignatureAttr(const mlx5dv_sig_block_attr& attr, signature::BlockSignature* signature);

// Returns the number of signatures that a configuration sets up. Each takes a send queue slot (docs/facts.md, 137).
inline uint32_t DomainCount(const signature::BlockSignature& signature) {
  return (signature.memory.kind != signature::Kind::kNone ? 1 : 0) +
         (signature.wire.kind != signature::Kind::kNone ? 1 : 0);
}

mlx5dv_mkey_err ToMkeyError(const signature::Mismatch& mismatch);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SIGNATURE_ATTR_H_

// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/memory_need.h"

#include "transport/endpoint/buffer_sizes.h"

namespace sluice::endpoint {

MemoryNeed NeedOf(const Options& options, bool rc) {
  MemoryNeed need;
  const auto add = [&](uint32_t srq_size, uint32_t max_peers) {
    const size_t stride_bytes = receive::ReceiveQueue::StrideBytes(BufferBytes(options));
    if (rc) {
      need.at_start_bytes += RcDepth(srq_size, max_peers) * stride_bytes;
      return;
    }
    need.at_start_bytes +=
        DataDepth(srq_size) * stride_bytes +
        ControlDepth(max_peers) * receive::ReceiveQueue::StrideBytes(kControlBufferBytes);
  };
  if (options.tenants.empty()) add(options.srq_size, options.max_peers);
  for (const Tenant& tenant : options.tenants) add(tenant.srq_size, tenant.max_peers);
  need.at_start_bytes += SendStrideBytes(options) * options.send_buffers +
                         size_t{kControlSlots} * kControlBufferBytes + SendRingsBytes(options);
  need.later_bytes = options.lane_memory_bytes;
  // For lent memory and for fetched memory.
  if (options.max_large_bytes != 0) need.later_bytes += 2 * options.large_memory_bytes;
  return need;
}

std::string MebibytesOf(uint64_t bytes) {
  constexpr uint64_t kMebibyte = 1 << 20;
  return std::to_string((bytes + kMebibyte - 1) / kMebibyte) + " MiB";
}

}  // namespace sluice::endpoint

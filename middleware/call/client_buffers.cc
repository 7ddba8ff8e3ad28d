// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: buffers for attachments, and the server of each buffer.
#include <algorithm>

#include "middleware/call/client_engine.h"

namespace sluice::call {

absl::StatusOr<Buffer> ClientEngine::MakeBuffer(size_t bytes) {
  const size_t first = connections_.empty() ? 0 : FirstChoice(nullptr);
  for (size_t i = 0; i < connections_.size(); ++i) {
    const Connection& one = *connections_[(first + i) % connections_.size()];
    if (!MayGetCalls(one)) continue;
    return Buffer::Make(endpoint_, one.peer, one.server, bytes,
                        one.limit_bytes - frame::kHeaderBytes, one.eager_bytes);
  }
  // The call that takes the buffer connects to the server that rests, and copies the buffer.
  if (std::any_of(connections_.begin(), connections_.end(),
                  [](const auto& one) { return one->rests; })) {
    return Buffer::Ordinary(bytes);
  }
  return NotConnected("make a buffer");
}

}  // namespace sluice::call

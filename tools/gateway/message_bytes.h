// SPDX-License-Identifier: Apache-2.0
//
// BytesOf(), BufferOf(): a message of gRPC as bytes, and back.
//
// Threads       Any: functions of their arguments.
// Cost          BytesOf() copies once. BufferOf() does not copy.
#ifndef SLUICE_TOOLS_GATEWAY_MESSAGE_BYTES_H_
#define SLUICE_TOOLS_GATEWAY_MESSAGE_BYTES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::gateway {

inline std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

inline grpc::ByteBuffer BufferOf(std::string bytes) {
  auto* const owned = new std::string(std::move(bytes));
  const grpc::Slice slice(
      owned->data(), owned->size(), [](void* string) { delete static_cast<std::string*>(string); },
      owned);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_MESSAGE_BYTES_H_

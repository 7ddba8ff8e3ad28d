// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/message_codec.h"

#include "middleware/call/message_bytes.h"

namespace sluice::call {

size_t SizeOfAnyMessage(const google::protobuf::MessageLite& message) {
  return message.ByteSizeLong();
}

void WriteAnyMessage(const google::protobuf::MessageLite& message, size_t bytes, std::byte* place) {
  WriteMessage(message, bytes, place);
}

bool ReadAnyMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite* message) {
  return ReadMessage(bytes, message);
}

}  // namespace sluice::call

// SPDX-License-Identifier: Apache-2.0
//
// MessageCodec: the functions that write and read the messages of one type.
//
// Purpose       Method has one for requests and one for replies. kAnyMessage calls protobuf and takes messages of any type. Generated
//               code has others, for types with plain fields only (plain_message.h). Their bytes are those of protobuf.
// Ownership     Constants.
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_CALL_MESSAGE_CODEC_H_
#define SLUICE_MIDDLEWARE_CALL_MESSAGE_CODEC_H_

#include <cstddef>
#include <span>

#include "google/protobuf/message_lite.h"

namespace sluice::call {

struct MessageCodec {
  // Returns the number of bytes that `write` writes.
  size_t (*size)(const google::protobuf::MessageLite& message);
  // Writes the message at `place`. `size` returned `bytes` before, and the message has not changed since.
  void (*write)(const google::protobuf::MessageLite& message, size_t bytes, std::byte* place);
  // Replaces the content of the message with the message in `bytes`, which must not change during the call. Returns false if `bytes`
  // are not a valid message; the content is then undefined.
  bool (*read)(std::span<const std::byte> bytes, google::protobuf::MessageLite* message);
};

// Functions of kAnyMessage, which call protobuf.
size_t SizeOfAnyMessage(const google::protobuf::MessageLite& message);
void WriteAnyMessage(const google::protobuf::MessageLite& message, size_t bytes, std::byte* place);
bool ReadAnyMessage(std::span<const std::byte> bytes, google::protobuf::MessageLite* message);

inline constexpr MessageCodec kAnyMessage{&SizeOfAnyMessage, &WriteAnyMessage, &ReadAnyMessage};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_MESSAGE_CODEC_H_

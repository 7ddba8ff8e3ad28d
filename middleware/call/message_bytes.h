// SPDX-License-Identifier: Apache-2.0
//
// Converts a protobuf message to the bytes of a payload, and back. It does the work of SerializeWithCachedSizesToArray() and
// ParseFromArray() of protobuf 3.21 inline, without their intermediate calls. With other versions of protobuf it calls these functions.
//
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_CALL_MESSAGE_BYTES_H_
#define SLUICE_MIDDLEWARE_CALL_MESSAGE_BYTES_H_

#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message_lite.h"
#include "google/protobuf/parse_context.h"

// 1: use the functions that protobuf 3.21 declares for its generated code.
#if defined(GOOGLE_PROTOBUF_VERSION) && GOOGLE_PROTOBUF_VERSION >= 3021000 && \
    GOOGLE_PROTOBUF_VERSION < 3022000
#define SLUICE_PROTOBUF_INLINE 1
#else
#define SLUICE_PROTOBUF_INLINE 0
#endif

namespace sluice::call {

// Writes the message at `place`. Its ByteSizeLong() returned `size`, and the message has not changed since.
[[gnu::always_inline]] inline void WriteMessage(const google::protobuf::MessageLite& message,
                                                size_t size, std::byte* place) {
  auto* const target = reinterpret_cast<uint8_t*>(place);
#if SLUICE_PROTOBUF_INLINE
  if (size <= INT_MAX) [[likely]] {
    google::protobuf::io::EpsCopyOutputStream stream(
        target, static_cast<int>(size),
        google::protobuf::io::CodedOutputStream::IsDefaultSerializationDeterministic());
    message._InternalSerialize(target, &stream);
    return;
  }
#endif
  (void)size;
  message.SerializeWithCachedSizesToArray(target);
}

// Replaces the content of the message with the message in `bytes`, which must not change during the call. Returns false if `bytes` are
// not a valid message; the content is then undefined.
[[gnu::always_inline]] inline bool ReadMessage(std::span<const std::byte> bytes,
                                               google::protobuf::MessageLite* message) {
#if SLUICE_PROTOBUF_INLINE
  if (bytes.size() > INT_MAX) return false;
  message->Clear();
  const char* at = nullptr;
  google::protobuf::internal::ParseContext context(
      google::protobuf::io::CodedInputStream::GetDefaultRecursionLimit(), /*aliasing=*/false, &at,
      google::protobuf::StringPiece(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  at = message->_InternalParse(at, &context);
  return at != nullptr && context.EndedAtLimit() && message->IsInitializedWithErrors();
#else
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
#endif
}

}  // namespace sluice::call

#undef SLUICE_PROTOBUF_INLINE

#endif  // SLUICE_MIDDLEWARE_CALL_MESSAGE_BYTES_H_

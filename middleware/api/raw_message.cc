// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/raw_message.h"

#include "google/protobuf/arena.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/parse_context.h"

namespace sluice {

RawMessage* RawMessage::New(google::protobuf::Arena* arena) const {
  return google::protobuf::Arena::Create<RawMessage>(arena);
}

const char* RawMessage::_InternalParse(const char* at,
                                       google::protobuf::internal::ParseContext* context) {
  Own();
  // If the message is in one piece, as all messages of Sluice are, the context knows its length.
  const int left = context->BytesUntilLimit(at);
  constexpr int kUnknown = 1 << 30;  // a stream without a limit has a number near INT_MAX here
  if (left < kUnknown) return left <= 0 ? at : context->AppendString(at, left, &own_);
  while (!context->Done(&at)) own_.push_back(*at++);
  return at;
}

uint8_t* RawMessage::_InternalSerialize(uint8_t* target,
                                        google::protobuf::io::EpsCopyOutputStream* stream) const {
  const std::string_view whole = bytes();
  if (whole.empty()) return target;  // data() may be nullptr
  return stream->WriteRaw(whole.data(), static_cast<int>(whole.size()), target);
}

}  // namespace sluice

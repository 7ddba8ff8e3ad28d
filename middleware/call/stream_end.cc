// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/stream_end.h"

namespace sluice::call {

void StreamEnd::Reset() {
  sent_ = received_ = read_ = 0;
  may_send_ = said_ = kWindow;
  end_ = false;
}

bool StreamEnd::Receive(std::span<const std::byte> message) {
  if (end_ || unread() == kWindow) return false;
  inbox_[received_++ % kWindow].assign(reinterpret_cast<const char*>(message.data()),
                                       message.size());
  return true;
}

ReadResult StreamEnd::Read(google::protobuf::MessageLite* message) {
  if (unread() == 0) return end_ ? ReadResult::kEnd : ReadResult::kNothing;
  const bool parsed = message->ParseFromString(inbox_[read_++ % kWindow]);
  return parsed ? ReadResult::kMessage : ReadResult::kMalformed;
}

}  // namespace sluice::call

// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/buffer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "middleware/frame/frame.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

constexpr char kMake[] = "make a buffer";

absl::Status TooLarge(std::string_view address, uint64_t payload_bytes, uint64_t limit_bytes) {
  return base::Error(absl::StatusCode::kInvalidArgument, "buffer too large",
                     {.layer = "call",
                      .peer = address,
                      .operation = kMake,
                      .cause = absl::StrCat("the attachment would take ", payload_bytes,
                                            " bytes, the limit is ", limit_bytes),
                      .remedy = "send less, or raise max_large_message_bytes on both sides",
                      .retry_safe = true});
}

absl::Status NotMade(std::string_view address, size_t size, const absl::Status& why) {
  if (!absl::IsResourceExhausted(why) && !absl::IsAborted(why)) {
    return base::Prefix(why, "buffer not made");
  }
  const std::string cause(why.message());
  return base::Error(
      absl::StatusCode::kResourceExhausted, "buffer not made",
      {.layer = "call",
       .peer = address,
       .operation = kMake,
       .cause = absl::StrCat("there is no memory for ", size, " bytes: ", cause),
       .remedy = "release buffers, retry when messages have been read, or raise large_memory_bytes",
       .retry_safe = true});
}

}  // namespace

static_assert(frame::kMaxMetadataBytes + sizeof(uint16_t) + sizeof(uint32_t) <=
              Buffer::kRoomInFront);

Buffer Buffer::Ordinary(size_t size) {
  Buffer buffer;
  if (size == 0) return buffer;
  auto own = std::make_shared_for_overwrite<std::byte[]>(size);
  buffer.bytes_ = {own.get(), size};
  buffer.own_ = std::move(own);
  return buffer;
}

Buffer Buffer::Ordinary(std::string bytes) {
  Buffer buffer;
  if (bytes.empty()) return buffer;
  auto own = std::make_shared<std::string>(std::move(bytes));
  buffer.bytes_ = std::as_writable_bytes(std::span(*own));
  buffer.own_ = std::move(own);
  return buffer;
}

absl::StatusOr<Buffer> Buffer::Make(endpoint::Endpoint* endpoint, endpoint::PeerId peer,
                                    std::string_view address, size_t size, uint64_t limit_bytes,
                                    uint32_t eager_bytes) {
  if (size > limit_bytes) return TooLarge(address, size, limit_bytes);  // else the sum below wraps
  const size_t payload_bytes = frame::AttachmentBytes(size);
  if (payload_bytes > limit_bytes) return TooLarge(address, payload_bytes, limit_bytes);
  if (frame::kHeaderBytes + payload_bytes <= eager_bytes) return Ordinary(size);
  const auto lent = endpoint->Lend(peer, kRoomInFront + size + kRoomBehind, /*waits=*/false);
  // The endpoint's memory may be just enough for one message without the rooms.
  if (absl::IsInvalidArgument(lent.status())) return Ordinary(size);
  if (!lent.ok()) return NotMade(address, size, lent.status());
  Buffer buffer;
  buffer.memory_ = endpoint->HoldLent(lent->number);
  endpoint->EndLoan(lent->number);  // sending lends it again
  if (!buffer.memory_) return Ordinary(size);
  buffer.bytes_ = {lent->data + kRoomInFront, size};
  buffer.peer_ = peer;
  buffer.rooms_ = true;
  return buffer;
}

Buffer Buffer::Received(endpoint::HeldMemory memory, std::span<const std::byte> bytes) {
  Buffer buffer;
  buffer.memory_ = std::move(memory);
  buffer.bytes_ = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  return buffer;
}

session::InPlace Buffer::PlaceOf(size_t metadata_bytes, size_t message_bytes) const {
  if (!rooms_ || empty() || message_bytes > kRoomBehind) return {};
  return {&memory_, bytes_.data() - sizeof(uint32_t) - metadata_bytes};
}

Buffer Keep(std::span<const std::byte> attachment, size_t message_bytes,
            session::Sessions* sessions) {
  endpoint::HeldMemory memory;
  if (attachment.size() >= message_bytes) memory = sessions->Hold();
  if (memory) return Buffer::Received(std::move(memory), attachment);
  Buffer copy = Buffer::Ordinary(attachment.size());
  std::copy(attachment.begin(), attachment.end(), copy.data());
  return copy;
}

}  // namespace sluice::call

// SPDX-License-Identifier: Apache-2.0
//
// Buffer: the bytes of an attachment, in memory that the device reads from or has written to.
//
//   auto buffer = channel->MakeBuffer(size);      // ServerContext::MakeBuffer() in a handler
//   …                                             // write into buffer->bytes()
//   context.set_attachment(*std::move(buffer));
//
// Purpose       Move-only memory. A buffer that was made for sending has room around its bytes for
//               the rest of the message. The device of the peer that it was made for reads a large
//               attachment from this memory; no CPU of Sluice copies it. A received buffer is the
//               memory that this side's device has written.
// Copies        In these cases Sluice copies the bytes, as with ordinary memory: the attachment
//               fits into a message; the buffer was made for another server (the server
//               disconnected, or the buffer is another channel's); the message beside it is larger
//               than kRoomBehind; buffer and room are larger than large_memory_bytes; an earlier
//               call with the same buffer has not been read. SessionCounters::large_in_place counts
//               the attachments that were not copied.
// Ownership     The holder, or the call context that it was given to. Do not write into it
//               afterwards: each call with that context, retries included, sends its current bytes.
//               The destructor returns the memory to the endpoint; the peer has then read it, or
//               can no longer read it.
// Threads       Any, one at a time.
// Limits        limits.large_memory_bytes, shared with large messages. Received buffers keep at
//               most half of it, or the part that max_large_message_bytes leaves free if that is
//               less. Beyond that, and if the message beside the attachment is larger than the
//               attachment, the bytes are copied.
// End           It may outlive its channel or server: it stays readable, and no peer reads it.
#ifndef SLUICE_MIDDLEWARE_CALL_BUFFER_H_
#define SLUICE_MIDDLEWARE_CALL_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "middleware/session/sessions.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

class Buffer {
 public:
  // Room for metadata and the attachment's length, in bytes; whole pages, so that the attachment
  // starts at a page.
  static constexpr uint32_t kRoomInFront = 12 << 10;
  // Room for the message, in bytes.
  static constexpr uint32_t kRoomBehind = 16 << 10;

  Buffer() = default;  // empty
  Buffer(Buffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        own_(std::move(other.own_)),
        bytes_(std::exchange(other.bytes_, {})),
        peer_(other.peer_),
        rooms_(other.rooms_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    own_ = std::move(other.own_);
    bytes_ = std::exchange(other.bytes_, {});
    peer_ = other.peer_;
    rooms_ = other.rooms_;
    return *this;
  }

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  // Keeps the first `size` bytes, at most size(). 0: releases the memory.
  void Shrink(size_t size) {
    if (size == 0) *this = {};
    if (size != 0) bytes_ = bytes_.first(size);
  }

  // ---- For the engines.
  // Return a buffer in ordinary memory.
  static Buffer Ordinary(size_t size);
  static Buffer Ordinary(std::string bytes);
  // Returns a buffer with room around it, for `peer` only. Returns a buffer in ordinary memory if the
  // message has at most `eager_bytes`. `limit_bytes`: maximum size of a payload.
  // Errors: INVALID_ARGUMENT (over the limit), RESOURCE_EXHAUSTED (no memory), UNAVAILABLE (no such peer).
  static absl::StatusOr<Buffer> Make(endpoint::Endpoint* endpoint, endpoint::PeerId peer,
                                     std::string_view address, size_t size, uint64_t limit_bytes,
                                     uint32_t eager_bytes);
  // Returns a buffer of `bytes` in fetched memory.
  static Buffer Received(endpoint::HeldMemory memory, std::span<const std::byte> bytes);
  // Returns the start of a payload with this attachment, and with metadata and a message of these
  // sizes; empty if there is no room.
  session::InPlace PlaceOf(size_t metadata_bytes, size_t message_bytes) const;
  // Returns the peer that the buffer was made for.
  endpoint::PeerId peer() const { return peer_; }

 private:
  endpoint::HeldMemory memory_;
  std::shared_ptr<void> own_;
  std::span<std::byte> bytes_;
  endpoint::PeerId peer_;
  bool rooms_ = false;
};

// Returns a received attachment in the memory in which it arrived. Copies it if that memory cannot
// be held, or if the message beside it is larger than the attachment. Call in User::OnMessage()
// only.
Buffer Keep(std::span<const std::byte> attachment, size_t message_bytes,
            session::Sessions* sessions);

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_BUFFER_H_

// SPDX-License-Identifier: Apache-2.0
//
// Buffer: the bytes of an attachment, in memory that the device reads, or has written.
//
//   auto buffer = channel->MakeBuffer(size);      // ServerContext::MakeBuffer() in a handler
//   …                                             // write into buffer->bytes()
//   context.set_attachment(*std::move(buffer));
//
// What it is    Move-only memory. One that was made to be sent has room around its bytes for the rest of the message, so a
//               large attachment goes to the peer it was made for from where it stands: the peer's device reads it there,
//               and no CPU of Sluice copies it. One that was received is what this side's device has read.
// Copied        Instead, as bytes in any other memory are: what fits into a message; what goes to another server than
//               it was made for (it went down, or the buffer is another channel's); beside a message that is larger than
//               kRoomBehind; what with its rooms is more than large_memory_bytes; while an earlier call with the same buffer
//               has not been read.
//               SessionCounters::large_in_place counts those that were not.
// Who owns it   Whoever has it; a call context, once it was given there. Nobody writes into it then: each call made with that
//               context sends what stands there, and so do repetitions. It goes back to its endpoint when it is destroyed, and
//               its peer can't read it any more, or has read it.
// Which thread  Any, one at a time.
// What ends it  Its destructor. It may outlive its channel or server: it stays readable, and no peer reads it any more.
// Bound         limits.large_memory_bytes, which large messages share. Of what was received half of that is kept as it came, or
//               what max_large_message_bytes leaves of it if that is less; beyond that, and beside a message that is larger
//               than itself, it is copied.
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
  // For metadata and the attachment's length, whatever they are; whole pages, so that the bytes begin a page.
  static constexpr uint32_t kRoomInFront = 12 << 10;
  // For the message.
  static constexpr uint32_t kRoomBehind = 16 << 10;

  Buffer() = default;  // of nothing
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
  // Only the first `size` of them; no more than there are. 0: nothing is left, and the memory goes back.
  void Shrink(size_t size) {
    if (size == 0) *this = {};
    if (size != 0) bytes_ = bytes_.first(size);
  }

  // ---- For those who move it.
  // In ordinary memory.
  static Buffer Ordinary(size_t size);
  static Buffer Ordinary(std::string bytes);
  // With the rooms around it, for this peer alone; what fits into a message of `eager_bytes` needs none. `limit_bytes`: of a
  // payload. INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAVAILABLE.
  static absl::StatusOr<Buffer> Make(endpoint::Endpoint* endpoint, endpoint::PeerId peer,
                                     std::string_view address, size_t size, uint64_t limit_bytes,
                                     uint32_t eager_bytes);
  // `bytes` of memory that was fetched.
  static Buffer Received(endpoint::HeldMemory memory, std::span<const std::byte> bytes);
  // Where a payload would begin that has it for its attachment, with these around it; nothing if it can't.
  session::InPlace PlaceOf(size_t metadata_bytes, size_t message_bytes) const;
  // For whom it was made.
  endpoint::PeerId peer() const { return peer_; }

 private:
  endpoint::HeldMemory memory_;
  std::shared_ptr<void> own_;
  std::span<std::byte> bytes_;
  endpoint::PeerId peer_;
  bool rooms_ = false;
};

// A received attachment: in the memory in which it came; or a copy, if that can't be held, or most of it is the message
// beside it. In User::OnMessage() only.
Buffer Keep(std::span<const std::byte> attachment, size_t message_bytes,
            session::Sessions* sessions);

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_BUFFER_H_

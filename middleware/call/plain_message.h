// SPDX-License-Identifier: Apache-2.0
//
// PlainMessage: the codec of a message type whose fields are singular numbers, strings and bytes. Used by generated code.
//
//   using Codec = PlainMessage<SayRequest, BytesField<1, &SayRequest::payload, &SayRequest::mutable_payload,
//                                                     &SayRequest::clear_payload>>;
//   constexpr Method kSay("/echo.Echo/Say", Streams::kNobody, /*idempotent=*/false, &Codec::kCodec, …);
//
// Purpose       Writes and reads a message in one function without protobuf's general parser and writer. It writes the bytes that
//               protobuf writes. It reads what protobuf writes for such a message: each field at most once, in the order of their
//               numbers. All other input, and each message that has more than plain fields (unknown fields, text that is not
//               ASCII, a number of ten bytes), goes to kAnyMessage. So protobuf alone decides what is valid.
// Threads       Any: pure functions.
// Limits        Fields without presence, in the order of their numbers, which are 1 to 15: a tag is one byte.
#ifndef SLUICE_MIDDLEWARE_CALL_PLAIN_MESSAGE_H_
#define SLUICE_MIDDLEWARE_CALL_PLAIN_MESSAGE_H_

#include <bit>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "middleware/call/message_codec.h"

namespace sluice::call {
namespace internal {

// Wire types of protobuf's encoding.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthPrefixed = 2, kFixed32 = 5 };

constexpr uint8_t Tag(uint32_t number, WireType type) {
  return static_cast<uint8_t>(number << 3 | type);
}

// Returns the number of bytes of a varint: a seventh of its bits, rounded up, without a division by seven.
constexpr size_t VarintBytes(uint64_t value) {
  return (static_cast<unsigned>(std::bit_width(value | 1)) * 9 + 64) / 64;
}

// Detects fields that the type of a message does not know. It reads a member that protobuf 3.21 declares for its generated code. With
// other versions of protobuf, MayBeIn() always returns true, and kAnyMessage writes and reads the message.
class UnknownFields : public google::protobuf::MessageLite {
 public:
  template <typename Message>
  static bool MayBeIn(const Message& message) {
#if defined(GOOGLE_PROTOBUF_VERSION) && GOOGLE_PROTOBUF_VERSION >= 3021000 && \
    GOOGLE_PROTOBUF_VERSION < 3022000
    const google::protobuf::internal::InternalMetadata& metadata =
        message.*(&UnknownFields::_internal_metadata_);
    if (!metadata.have_unknown_fields()) [[likely]]
      return false;
    // The set stays allocated after it was cleared.
    if constexpr (std::is_base_of_v<google::protobuf::Message, Message>) {
      using google::protobuf::UnknownFieldSet;
      return !metadata.unknown_fields<UnknownFieldSet>(UnknownFieldSet::default_instance).empty();
    }
#endif
    (void)message;
    return true;
  }
};

inline bool IsAscii(std::string_view text) {
  uint64_t seen = 0;
  size_t at = 0;
  for (; at + sizeof(seen) <= text.size(); at += sizeof(seen)) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof(word));
    seen |= word;
  }
  for (; at < text.size(); ++at) seen |= static_cast<uint8_t>(text[at]);
  return (seen & 0x8080808080808080u) == 0;
}

// Writes fields into the bytes of one message. Leaves out a field that does not fit, and all fields after it.
class PlainWriter {
 public:
  PlainWriter(std::byte* place, size_t bytes)
      : at_(reinterpret_cast<uint8_t*>(place)), end_(at_ + bytes) {}

  // Returns true if all bytes were written and no field was left out.
  bool Complete() const { return at_ == end_ && !left_out_; }
  void Varint(uint8_t tag, uint64_t value) {
    if (left() < 1 + VarintBytes(value)) [[unlikely]]
      return LeaveOut();
    *at_++ = tag;
    PutVarint(value);
  }
  template <typename Number>
  void Fixed(uint8_t tag, Number number) {
    if (left() < 1 + sizeof(number)) [[unlikely]]
      return LeaveOut();
    *at_++ = tag;
    std::memcpy(at_, &number, sizeof(number));
    at_ += sizeof(number);
  }
  void Bytes(uint8_t tag, std::string_view bytes) {
    if (left() < 1 + VarintBytes(bytes.size()) + bytes.size()) [[unlikely]]
      return LeaveOut();
    *at_++ = tag;
    PutVarint(bytes.size());
    std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }

 private:
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  void LeaveOut() {
    left_out_ = true;
    end_ = at_;
  }
  void PutVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<uint8_t>(value | 0x80);
    *at_++ = static_cast<uint8_t>(value);
  }

  uint8_t* at_;
  uint8_t* end_;
  bool left_out_ = false;
};

class PlainReader {
 public:
  explicit PlainReader(std::span<const std::byte> bytes)
      : at_(reinterpret_cast<const uint8_t*>(bytes.data())), end_(at_ + bytes.size()) {}

  bool AtEnd() const { return at_ == end_; }
  // Consumes the tag and returns true if the tag comes next.
  bool Begins(uint8_t tag) {
    if (at_ == end_ || *at_ != tag) return false;
    ++at_;
    return true;
  }
  // Returns false if the message ends inside the number, or the number has more than 64 bits.
  bool Varint(uint64_t* value) {
    if (at_ != end_ && *at_ < 0x80) [[likely]] {
      *value = *at_++;
      return true;
    }
    uint64_t result = 0;
    for (int shift = 0; shift < 70 && at_ != end_; shift += 7) {
      const uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) return false;
      result |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) {
        *value = result;
        return true;
      }
    }
    return false;
  }
  template <typename Number>
  bool Fixed(Number* number) {
    if (static_cast<size_t>(end_ - at_) < sizeof(*number)) return false;
    std::memcpy(number, at_, sizeof(*number));
    at_ += sizeof(*number);
    return true;
  }
  bool Bytes(std::string_view* bytes) {
    uint64_t size = 0;
    const uint8_t* const begin = at_;
    if (!Varint(&size) || size > static_cast<size_t>(end_ - at_)) return false;
    if (at_ - begin > 1) [[unlikely]] {  // protobuf refuses such lengths
      if (at_ - begin > kMaxLengthBytes || size > kMaxFieldBytes) return false;
    }
    *bytes = {reinterpret_cast<const char*>(at_), static_cast<size_t>(size)};
    at_ += size;
    return true;
  }

 private:
  static constexpr uint64_t kMaxFieldBytes = INT_MAX - 16;
  static constexpr int kMaxLengthBytes = 5;

  const uint8_t* at_;
  const uint8_t* end_;
};

// Copies `from` to `to`. Messages of one method mostly have strings of one size: such a string is overwritten in place.
inline void Replace(std::string_view from, std::string* to) {
  if (from.size() == to->size() && !from.empty()) {
    std::memcpy(to->data(), from.data(), from.size());
  } else {
    to->assign(from);
  }
}

}  // namespace internal

// Fields, by their number and accessors. A field with the default value is not written.

template <uint32_t kNumber, auto kGet, auto kMutable, auto kClear>
struct BytesField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static constexpr uint8_t kTag = internal::Tag(kNumber, internal::kLengthPrefixed);

  template <typename Message>
  static bool IsPlain(const Message&) {
    return true;
  }
  template <typename Message>
  static size_t Size(const Message& message) {
    const std::string_view bytes = (message.*kGet)();
    return bytes.empty() ? 0 : 1 + internal::VarintBytes(bytes.size()) + bytes.size();
  }
  template <typename Message>
  static void Write(const Message& message, internal::PlainWriter& out) {
    const std::string_view bytes = (message.*kGet)();
    if (!bytes.empty()) out.Bytes(kTag, bytes);
  }
  template <typename Message>
  static bool Read(internal::PlainReader& in, Message* message) {
    if (!in.Begins(kTag)) {
      (message->*kClear)();
      return true;
    }
    std::string_view bytes;
    if (!in.Bytes(&bytes)) return false;
    internal::Replace(bytes, (message->*kMutable)());
    return true;
  }
};

// Text that is not ASCII goes to protobuf, which checks it.
template <uint32_t kNumber, auto kGet, auto kMutable, auto kClear>
struct TextField : BytesField<kNumber, kGet, kMutable, kClear> {
  using Base = BytesField<kNumber, kGet, kMutable, kClear>;

  template <typename Message>
  static bool IsPlain(const Message& message) {
    return internal::IsAscii((message.*kGet)());
  }
  template <typename Message>
  static bool Read(internal::PlainReader& in, Message* message) {
    return Base::Read(in, message) && IsPlain(*message);
  }
};

// A number of variable length, a bool or an enum.
template <uint32_t kNumber, auto kGet, auto kSet>
struct VarintField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static constexpr uint8_t kTag = internal::Tag(kNumber, internal::kVarint);

  template <typename Message>
  static bool IsPlain(const Message&) {
    return true;
  }
  template <typename Message>
  static size_t Size(const Message& message) {
    const uint64_t value = ValueOf(message);
    return value == 0 ? 0 : 1 + internal::VarintBytes(value);
  }
  template <typename Message>
  static void Write(const Message& message, internal::PlainWriter& out) {
    if (const uint64_t value = ValueOf(message); value != 0) out.Varint(kTag, value);
  }
  template <typename Message>
  static bool Read(internal::PlainReader& in, Message* message) {
    uint64_t value = 0;
    if (in.Begins(kTag) && !in.Varint(&value)) return false;
    using Number = decltype((message->*kGet)());
    if constexpr (std::is_same_v<Number, bool>) {
      (message->*kSet)(value != 0);
    } else if constexpr (std::is_enum_v<Number>) {
      (message->*kSet)(static_cast<Number>(static_cast<int32_t>(value)));
    } else {
      (message->*kSet)(static_cast<Number>(value));
    }
    return true;
  }

 private:
  // Negative numbers have ten bytes.
  template <typename Message>
  static uint64_t ValueOf(const Message& message) {
    return static_cast<uint64_t>((message.*kGet)());
  }
};

// A number of four or eight bytes. A zero is not written; a negative zero is.
template <uint32_t kNumber, auto kGet, auto kSet>
struct FixedField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static_assert(std::endian::native == std::endian::little);

  template <typename Message>
  static bool IsPlain(const Message&) {
    return true;
  }
  template <typename Message>
  static size_t Size(const Message& message) {
    return IsZero((message.*kGet)()) ? 0 : 1 + sizeof((message.*kGet)());
  }
  template <typename Message>
  static void Write(const Message& message, internal::PlainWriter& out) {
    const auto number = (message.*kGet)();
    if (!IsZero(number)) out.Fixed(TagOf(number), number);
  }
  template <typename Message>
  static bool Read(internal::PlainReader& in, Message* message) {
    decltype((message->*kGet)()) number{};
    if (in.Begins(TagOf(number)) && !in.Fixed(&number)) return false;
    (message->*kSet)(number);
    return true;
  }

 private:
  template <typename Number>
  static constexpr uint8_t TagOf(Number) {
    static_assert(sizeof(Number) == 4 || sizeof(Number) == 8);
    return internal::Tag(kNumber, sizeof(Number) == 4 ? internal::kFixed32 : internal::kFixed64);
  }
  template <typename Number>
  static bool IsZero(Number number) {
    constexpr std::byte kZeros[sizeof(Number)] = {};
    return std::memcmp(&number, kZeros, sizeof(number)) == 0;
  }
};

template <typename Message, typename... Fields>
class PlainMessage {
 public:
  static size_t Size(const google::protobuf::MessageLite& of) {
    const auto& message = static_cast<const Message&>(of);
    if (internal::UnknownFields::MayBeIn(message) || !ArePlain(message)) [[unlikely]]
      return SizeOfAnyMessage(of);
    return (size_t{0} + ... + Fields::Size(message));
  }
  // If there are unknown fields, `bytes` is larger than the plain fields, and protobuf writes the message. If another thread has changed
  // the message since Size(), Write() writes zeros, which the reader refuses.
  static void Write(const google::protobuf::MessageLite& from, size_t bytes, std::byte* place) {
    const auto& message = static_cast<const Message&>(from);
    if (!ArePlain(message)) [[unlikely]]
      return WriteAnyMessage(from, bytes, place);
    internal::PlainWriter out(place, bytes);
    (Fields::Write(message, out), ...);
    if (out.Complete()) [[likely]]
      return;
    if (from.ByteSizeLong() == bytes) return WriteAnyMessage(from, bytes, place);
    std::memset(place, 0, bytes);
  }
  static bool Read(std::span<const std::byte> bytes, google::protobuf::MessageLite* to) {
    auto* const message = static_cast<Message*>(to);
    if (!internal::UnknownFields::MayBeIn(*message) && bytes.size() <= INT_MAX) [[likely]] {
      internal::PlainReader in(bytes);
      if ((Fields::Read(in, message) && ...) && in.AtEnd()) [[likely]]
        return true;
    }
    return ReadAnyMessage(bytes, to);
  }

  static constexpr MessageCodec kCodec{&Size, &Write, &Read};

 private:
  static bool ArePlain(const Message& message) { return (Fields::IsPlain(message) && ...); }
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_PLAIN_MESSAGE_H_

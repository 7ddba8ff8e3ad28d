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
#include <tuple>
#include <type_traits>
#include <utility>

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

inline uint8_t* PutVarint(uint64_t value, uint8_t* at) {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value | 0x80);
  *at++ = static_cast<uint8_t>(value);
  return at;
}

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
    if (at_ != end_ && *at_ < 0x80) [[likely]] {
      size = *at_++;
      if (size > static_cast<size_t>(end_ - at_)) return false;
      *bytes = {reinterpret_cast<const char*>(at_), static_cast<size_t>(size)};
      at_ += size;
      return true;
    }
    if (!Varint(&size) || size > static_cast<size_t>(end_ - at_)) return false;
    // protobuf refuses such lengths.
    if (at_ - begin > kMaxLengthBytes || size > kMaxFieldBytes) return false;
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

}  // namespace internal

// Fields, by their number and accessors. A field with the default value is not written. Each has a value: a number, or the view of its bytes.

template <uint32_t kNumber, auto kGet, auto kMutable, auto kClear>
struct BytesField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static constexpr uint8_t kTag = internal::Tag(kNumber, internal::kLengthPrefixed);
  template <typename Message>
  using Value = std::string_view;

  template <typename Message>
  static std::string_view ValueOf(const Message& message) {
    return (message.*kGet)();
  }
  static bool IsPlain(std::string_view) { return true; }
  static size_t Size(std::string_view bytes) {
    return bytes.empty() ? 0 : 1 + internal::VarintBytes(bytes.size()) + bytes.size();
  }
  static uint8_t* Put(std::string_view bytes, uint8_t* at) {
    if (bytes.empty()) return at;
    *at++ = kTag;
    at = internal::PutVarint(bytes.size(), at);
    std::memcpy(at, bytes.data(), bytes.size());
    return at + bytes.size();
  }
  static bool Take(internal::PlainReader& in, std::string_view* bytes) {
    return !in.Begins(kTag) || in.Bytes(bytes);
  }
  // Messages of one method mostly have strings of one size: such a string is overwritten in place. It belongs to the message, since the
  // default that messages share is empty.
  template <typename Message>
  static void Assign(std::string_view bytes, Message* message) {
    const std::string& before = (message->*kGet)();
    if (bytes.size() != before.size() || bytes.empty()) [[unlikely]]
      return AssignAny(bytes, message);
    std::memcpy(const_cast<char*>(before.data()), bytes.data(), bytes.size());
  }

 private:
  template <typename Message>
  [[gnu::noinline]] static void AssignAny(std::string_view bytes, Message* message) {
    if (bytes.empty()) return (message->*kClear)();
    (message->*kMutable)()->assign(bytes);
  }
};

// Text that is not ASCII goes to protobuf, which checks it.
template <uint32_t kNumber, auto kGet, auto kMutable, auto kClear>
struct TextField : BytesField<kNumber, kGet, kMutable, kClear> {
  using Base = BytesField<kNumber, kGet, kMutable, kClear>;

  static bool IsPlain(std::string_view text) { return internal::IsAscii(text); }
  static bool Take(internal::PlainReader& in, std::string_view* text) {
    return Base::Take(in, text) && IsPlain(*text);
  }
};

// A number of variable length, a bool or an enum.
template <uint32_t kNumber, auto kGet, auto kSet>
struct VarintField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static constexpr uint8_t kTag = internal::Tag(kNumber, internal::kVarint);
  template <typename Message>
  using Value = uint64_t;

  // Negative numbers have ten bytes.
  template <typename Message>
  static uint64_t ValueOf(const Message& message) {
    return static_cast<uint64_t>((message.*kGet)());
  }
  static bool IsPlain(uint64_t) { return true; }
  static size_t Size(uint64_t value) { return value == 0 ? 0 : 1 + internal::VarintBytes(value); }
  static uint8_t* Put(uint64_t value, uint8_t* at) {
    if (value == 0) return at;
    *at++ = kTag;
    return internal::PutVarint(value, at);
  }
  static bool Take(internal::PlainReader& in, uint64_t* value) {
    return !in.Begins(kTag) || in.Varint(value);
  }
  template <typename Message>
  static void Assign(uint64_t value, Message* message) {
    using Number = decltype((message->*kGet)());
    if constexpr (std::is_same_v<Number, bool>) {
      (message->*kSet)(value != 0);
    } else if constexpr (std::is_enum_v<Number>) {
      (message->*kSet)(static_cast<Number>(static_cast<int32_t>(value)));
    } else {
      (message->*kSet)(static_cast<Number>(value));
    }
  }
};

// A number of four or eight bytes. A zero is not written; a negative zero is.
template <uint32_t kNumber, auto kGet, auto kSet>
struct FixedField {
  static_assert(kNumber >= 1 && kNumber <= 15);
  static_assert(std::endian::native == std::endian::little);
  template <typename Message>
  using Value = decltype((std::declval<const Message&>().*kGet)());

  template <typename Message>
  static Value<Message> ValueOf(const Message& message) {
    return (message.*kGet)();
  }
  template <typename Number>
  static bool IsPlain(Number) {
    return true;
  }
  template <typename Number>
  static size_t Size(Number number) {
    return IsZero(number) ? 0 : 1 + sizeof(number);
  }
  template <typename Number>
  static uint8_t* Put(Number number, uint8_t* at) {
    if (IsZero(number)) return at;
    *at++ = TagOf(number);
    std::memcpy(at, &number, sizeof(number));
    return at + sizeof(number);
  }
  template <typename Number>
  static bool Take(internal::PlainReader& in, Number* number) {
    return !in.Begins(TagOf(*number)) || in.Fixed(number);
  }
  template <typename Number, typename Message>
  static void Assign(Number number, Message* message) {
    (message->*kSet)(number);
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
  using Each = std::index_sequence_for<Fields...>;
  using Values = std::tuple<typename Fields::template Value<Message>...>;

 public:
  static size_t Size(const google::protobuf::MessageLite& of) {
    const auto& message = static_cast<const Message&>(of);
    const Values values = ValuesOf(message);
    if (internal::UnknownFields::MayBeIn(message) || !ArePlain(values, Each())) [[unlikely]]
      return SizeOfAnyMessage(of);
    return SizeOf(values, Each());
  }
  // If there are unknown fields, `bytes` is larger than the plain fields, and protobuf writes the message. If another thread has changed
  // the message since Size(), Write() writes zeros, which the reader refuses. The lengths of the fields are read once.
  static void Write(const google::protobuf::MessageLite& from, size_t bytes, std::byte* place) {
    const Values values = ValuesOf(static_cast<const Message&>(from));
    if (!ArePlain(values, Each())) [[unlikely]]
      return WriteAnyMessage(from, bytes, place);
    if (SizeOf(values, Each()) != bytes) [[unlikely]]
      return WriteOther(from, bytes, place);
    Put(values, reinterpret_cast<uint8_t*>(place), Each());
  }
  static bool Read(std::span<const std::byte> bytes, google::protobuf::MessageLite* to) {
    auto* const message = static_cast<Message*>(to);
    if (internal::UnknownFields::MayBeIn(*message) || bytes.size() > INT_MAX) [[unlikely]]
      return ReadAnyMessage(bytes, to);
    internal::PlainReader in(bytes);
    Values values{};  // fields that are not there have the default
    if (!Take(in, &values, Each()) || !in.AtEnd()) [[unlikely]]
      return ReadAnyMessage(bytes, to);
    Assign(values, message, Each());
    return true;
  }

  static constexpr MessageCodec kCodec{&Size, &Write, &Read};

 private:
  static Values ValuesOf(const Message& message) { return Values(Fields::ValueOf(message)...); }
  template <size_t... kIndex>
  static bool ArePlain([[maybe_unused]] const Values& values, std::index_sequence<kIndex...>) {
    return (Fields::IsPlain(std::get<kIndex>(values)) && ...);
  }
  template <size_t... kIndex>
  static size_t SizeOf([[maybe_unused]] const Values& values, std::index_sequence<kIndex...>) {
    return (size_t{0} + ... + Fields::Size(std::get<kIndex>(values)));
  }
  template <size_t... kIndex>
  static void Put([[maybe_unused]] const Values& values, uint8_t* at,
                  std::index_sequence<kIndex...>) {
    ((at = Fields::Put(std::get<kIndex>(values), at)), ...);
  }
  template <size_t... kIndex>
  static bool Take([[maybe_unused]] internal::PlainReader& in, [[maybe_unused]] Values* values,
                   std::index_sequence<kIndex...>) {
    return (Fields::Take(in, &std::get<kIndex>(*values)) && ...);
  }
  template <size_t... kIndex>
  static void Assign([[maybe_unused]] const Values& values, [[maybe_unused]] Message* message,
                     std::index_sequence<kIndex...>) {
    (Fields::Assign(std::get<kIndex>(values), message), ...);
  }
  [[gnu::noinline]] static void WriteOther(const google::protobuf::MessageLite& from, size_t bytes,
                                           std::byte* place) {
    if (from.ByteSizeLong() == bytes) return WriteAnyMessage(from, bytes, place);
    std::memset(place, 0, bytes);
  }
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_PLAIN_MESSAGE_H_

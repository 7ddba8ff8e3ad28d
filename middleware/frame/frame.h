// SPDX-License-Identifier: Apache-2.0
//
// Wire format of Sluice's messages. One header carries the fields of session, call and flow.
//
// A message, as endpoint::Endpoint carries it, complete or not at all. All numbers are little-endian:
//
//   message  := header payload
//   header   := version:u8 kind:u8 flags:u16 flow_id:u32 sequence:u32 flow_window:u32
//               call_id:u64 method_id:u64 timeout_ns:u64
//               payload_bytes:u32 status_code:u16 reserved:u16                            (48 bytes)
//   payload  := metadata? attachment? message
//   metadata := bytes:u16 serialised sluice.Metadata, `bytes` of it      with kFlagMetadata
//   attachment := bytes:u32 data of the caller or the handler, `bytes` of it, at least 1      with kFlagAttachment
//   message  := request or reply, serialised protobuf      kind = kRequest, kStreamData, or kReply with status 0
//             | text_bytes:u32 text detail*                kind = kReply or kFlowClose with status 1 to 16
//             | priority:u8 name                           kind = kFlowOpen
//             | data of the sender                         kind = kFlowData
//             | nothing                                    all other kinds
//   name     := name of the requested end, 1 to kMaxEndNameBytes bytes
//   text     := UTF-8
//   detail   := url_bytes:u16 type URL value_bytes:u32 value      payload of an absl::Status; at most kMaxStatusPayloads
//
//   With kFlagLarge (request, reply with status 0, kStreamData, kFlowData) the payload is a Place: the location of the payload above in
//   the memory of the sender. The receiver reads it there, and then sends kTaken.
//
//   field            request                                 reply
//   flow_id          0                                       0
//   sequence         of this message between the two sides, in this direction: from 0, +1 each, wraps
//   flow_window      with kFlagServerStreams: as in          0
//                    kStreamWindow; 0: kInitialStreamWindow
//   call_id          chosen by the caller; any value         the request's
//   method_id        frame::MethodId(), not 0                0
//   timeout_ns       time left until the deadline when the   0
//                    message is sent; 0: no deadline
//   status_code      0                                       absl::StatusCode, 0 to 16
//   flags            kFlagMetadata, kFlagAttachment, and     kFlagMetadata; kFlagAttachment with status 0;
//                    for streams: kFlagClientStreams,        kFlagNotRun with an error: no handler has seen
//                    kFlagServerStreams                      the request
//   reserved         0                                       0
//
//   field        kCancel           kStreamData, kStreamWindow           kStreamEnd
//                caller to server  both ways, in streaming calls        caller to server: end of its stream
//   call_id      the request's, in all of these
//   flow_window  0                 messages that the receiver may       0
//                                  send in this call in total
//                                  (cumulative, wraps)
//   all other fields except sequence and payload_bytes: 0
//   kStreamMetadata, server to caller in a streaming call: initial metadata, with kFlagMetadata unless it is empty. At most one per
//   call, before the first kStreamData. call_id is the request's; all other fields except sequence, flags and payload_bytes are 0.
//   kDrain, server to caller: the server accepts no new calls on this connection. Caller to server, as the answer: no more requests
//   follow. Server to caller with kFlagRest: the server needs the queue pair for another client. A caller without calls in progress
//   disconnects, and connects again for its next call. Any other caller ignores the message. There is no answer: only the caller
//   knows whether a request has crossed the message. All fields except sequence and flags are 0.
//   In a streaming call, the request has no message if the caller streams, and the reply has none if the server streams. Each side may
//   send kInitialStreamWindow messages before it receives a window. A message counts as one for each MiB begun, and at most as half of
//   kInitialStreamWindow, regardless of the window.
//
//   field        kFlowOpen         kFlowAccept       kFlowData, kFlowWindow   kFlowClose
//   flow_id      0                 the receiver's index of the flow, in all of these
//   flow_window  messages that the receiver may send in the flow in total     0
//                (cumulative, wraps)
//   call_id      the sender's index of the flow      0                        0
//   status_code  0                 0                 0                        0, or the reason
//   method_id, timeout_ns, flags, reserved           0 in all of them
//
//   field        kTaken: the receiver has read a large message, or will not read it
//   call_id      the Place's number; kNothingTaken: no number, this message replaces a withdrawn message
//   all other fields except sequence: 0
//
// With the 16-byte prefix that transport/ puts in front, the payload begins on a cache line.
//
// To add a kind: (1) a number below, never one used before; (2) its line in the table above and in
// Decode()'s checks; (3) the receivers' switch: ClientEngine and ServerEngine in middleware/call,
// FlowEngine in middleware/flow;
// (4) golden bytes and the property test in tests/middleware/frame, and the corpus of
// tests/transport/peer/fuzz/frame_fuzz.cc; (5) if old receivers can't ignore it, raise kVersion.
//
// Threads       Pure functions.
#ifndef SLUICE_MIDDLEWARE_FRAME_FRAME_H_
#define SLUICE_MIDDLEWARE_FRAME_FRAME_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice::frame {

inline constexpr uint8_t kVersion = 8;
inline constexpr uint16_t kMaxStatusCode = 16;  // UNAUTHENTICATED, the last canonical code
inline constexpr uint64_t kMaxTimeoutNs = uint64_t{1} << 62;
inline constexpr uint32_t kMaxEndNameBytes = 255;
inline constexpr uint32_t kInitialStreamWindow = 16;
inline constexpr uint32_t kMaxMetadataBytes = 8192;

inline constexpr uint16_t kFlagMetadata = 1;
inline constexpr uint16_t kFlagClientStreams = 2;
inline constexpr uint16_t kFlagServerStreams = 4;
inline constexpr uint16_t kFlagNotRun = 8;
inline constexpr uint16_t kFlagLarge = 16;
inline constexpr uint16_t kFlagAttachment = 32;
inline constexpr uint16_t kFlagRest = 64;

enum class Kind : uint8_t {
  kRequest = 1,
  kReply = 2,
  kFlowOpen = 3,
  kFlowAccept = 4,
  kFlowData = 5,
  kFlowWindow = 6,
  kFlowClose = 7,
  kCancel = 8,
  kStreamData = 9,
  kStreamWindow = 10,
  kStreamEnd = 11,
  kDrain = 12,
  kTaken = 13,
  kStreamMetadata = 14,
};

struct Header {
  uint8_t version = kVersion;
  Kind kind = Kind::kRequest;
  uint16_t flags = 0;
  uint32_t flow_id = 0;
  uint32_t sequence = 0;
  uint32_t flow_window = 0;
  uint64_t call_id = 0;
  uint64_t method_id = 0;
  uint64_t timeout_ns = 0;
  uint32_t payload_bytes = 0;
  uint16_t status_code = 0;
  uint16_t reserved = 0;

  friend bool operator==(const Header&, const Header&) = default;
};

inline constexpr uint32_t kHeaderBytes = sizeof(Header);

static_assert(std::endian::native == std::endian::little, "headers are copied, not converted");
static_assert(sizeof(Header) == 48);
static_assert(offsetof(Header, version) == 0);
static_assert(offsetof(Header, kind) == 1);
static_assert(offsetof(Header, flags) == 2);
static_assert(offsetof(Header, flow_id) == 4);
static_assert(offsetof(Header, sequence) == 8);
static_assert(offsetof(Header, flow_window) == 12);
static_assert(offsetof(Header, call_id) == 16);
static_assert(offsetof(Header, method_id) == 24);
static_assert(offsetof(Header, timeout_ns) == 32);
static_assert(offsetof(Header, payload_bytes) == 40);
static_assert(offsetof(Header, status_code) == 44);
static_assert(offsetof(Header, reserved) == 46);

// The fields of a request, or of a reply of success, without flags and flow.
struct PlainHeader {
  Kind kind = Kind::kRequest;
  uint32_t payload_bytes = 0;
  uint64_t call_id = 0;
  uint64_t method_id = 0;   // 0 in a reply
  uint64_t timeout_ns = 0;  // 0 in a reply
};
inline Header HeaderOf(const PlainHeader& plain) {
  return {.kind = plain.kind,
          .call_id = plain.call_id,
          .method_id = plain.method_id,
          .timeout_ns = plain.timeout_ns,
          .payload_bytes = plain.payload_bytes};
}
// The fields of a kFlowData message without flags.
struct FlowDataHeader {
  uint32_t flow_id = 0;
  uint32_t flow_window = 0;
  uint32_t payload_bytes = 0;
};
inline Header HeaderOf(const FlowDataHeader& data) {
  return {.kind = Kind::kFlowData,
          .flow_id = data.flow_id,
          .flow_window = data.flow_window,
          .payload_bytes = data.payload_bytes};
}

// Location of a large message in the memory of its sender.
struct Place {
  uint64_t address = 0;
  uint64_t bytes = 0;  // 1 to UINT32_MAX
  uint32_t key = 0;
  uint32_t number = 0;  // number of the sender

  friend bool operator==(const Place&, const Place&) = default;
};
inline constexpr uint32_t kPlaceBytes = sizeof(Place);
static_assert(sizeof(Place) == 24);
inline constexpr uint64_t kNothingTaken = UINT32_MAX;

inline void Encode(const Place& place, std::byte* destination) {
  std::memcpy(destination, &place, sizeof(place));
}
// Returns the Place in a payload that Decode() has accepted with kFlagLarge.
inline Place PlaceIn(std::span<const std::byte> payload) {
  Place place;
  std::memcpy(&place, payload.data(), sizeof(place));
  return place;
}

// Returns true if the message carries a Place, or is kTaken.
inline bool IsAboutLarge(const Header& header) {
  return (header.flags & kFlagLarge) != 0 || header.kind == Kind::kTaken;
}

// Defect of received bytes. A value other than kNone means that the sender is defective, or is not a Sluice of this version: its
// connection is closed.
enum class Fault : uint8_t {
  kNone = 0,
  kTooShort,       // fewer bytes than a header
  kOtherVersion,   // not kVersion
  kKind,           // unknown kind
  kReserved,       // reserved not 0, or a flag that is unknown or does not belong there
  kFlow,           // flow_id or flow_window where none belongs
  kPayloadLength,  // payload_bytes is not the number of bytes after the header
  kMethod,         // request without a method, or another message with one
  kTimeout,        // over kMaxTimeoutNs, or not in a request
  kStatus,         // over kMaxStatusCode, or where none belongs
  kCall,           // call_id out of range, or where none belongs
  kPayload,        // payload where none belongs, or kFlowOpen without a name or with a long name
  kMetadata,       // longer than the payload, or than kMaxMetadataBytes
  kPlace,          // not the size of a Place, or its length is out of range
  kAttachment,     // empty, or longer than the payload
};

// Returns a text for errors, for example "payload length does not match the message".
std::string_view Explain(Fault fault);

// Writes kHeaderBytes at `destination`, which may be registered memory and need not be aligned.
inline void Encode(const Header& header, std::byte* destination) {
  std::memcpy(destination, &header, sizeof(header));
}

// As Encode(HeaderOf(plain)), with the sequence number.
inline void EncodePlain(const PlainHeader& plain, uint32_t sequence, std::byte* destination);
inline void EncodePlain(const FlowDataHeader& data, uint32_t sequence, std::byte* destination);

// Reads and checks a message. If the result is kNone, `header` is filled, and bytes.subspan(kHeaderBytes) is the payload.
inline Fault Decode(std::span<const std::byte> bytes, Header* header);
// Completes the header of a large message after its payload was read. Sets the fields as if the payload had been in the message. Makes
// the checks that need the payload.
Fault Complete(Header* header, std::span<const std::byte> payload);

// Parts of a payload that Decode() has accepted: serialised metadata, attachment, message.
struct Parts {
  std::span<const std::byte> metadata;
  std::span<const std::byte> attachment;
  std::span<const std::byte> message;
};
inline Parts Split(const Header& header, std::span<const std::byte> payload);
// Returns the number of bytes that metadata of this size takes in a payload.
inline uint32_t MetadataBytes(size_t size) {
  return size == 0 ? 0 : static_cast<uint32_t>(size) + uint32_t{sizeof(uint16_t)};
}
// Writes the metadata, and returns the position after it. `metadata` has at most kMaxMetadataBytes. If it is empty, writes nothing, and
// leaves the flag as it is.
inline std::byte* PutMetadata(std::string_view metadata, Header& header, std::byte* payload);
// The same for an attachment, which follows the metadata. The attachment may already be in its place.
inline size_t AttachmentBytes(size_t size) { return size == 0 ? 0 : size + sizeof(uint32_t); }
inline std::byte* PutAttachment(std::span<const std::byte> attachment, Header& header,
                                std::byte* payload);

namespace internal {

// General versions of the functions above, without the fast path for most messages.
Fault DecodeAny(std::span<const std::byte> bytes, Header* header);
Parts SplitAny(const Header& header, std::span<const std::byte> payload);
std::byte* PutSomeMetadata(std::string_view metadata, Header& header, std::byte* payload);
std::byte* PutSomeAttachment(std::span<const std::byte> attachment, Header& header,
                             std::byte* payload);

// Returns the first 8 bytes of a message of this kind without flags and flow.
constexpr uint64_t PlainWord(Kind kind) { return kVersion | static_cast<uint64_t>(kind) << 8; }

// Returns true if the header of a message of `bytes` bytes is a valid header of a request, of a reply of success, or of a flow's data,
// without flags. For all other messages call DecodeAny().
inline bool IsPlain(const Header& header, size_t bytes) {
  const auto word = [&header](size_t offset) {
    uint64_t value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(&header) + offset, sizeof(value));
    return value;
  };
  // Length; status_code and reserved are 0.
  if (word(offsetof(Header, payload_bytes)) != bytes - kHeaderBytes || bytes > UINT32_MAX) {
    return false;
  }
  if (word(0) == PlainWord(Kind::kRequest)) {
    return header.flow_window == 0 && header.method_id != 0 && header.timeout_ns <= kMaxTimeoutNs;
  }
  if ((header.method_id | header.timeout_ns) != 0) return false;
  if (word(0) == PlainWord(Kind::kReply)) return header.flow_window == 0;
  return static_cast<uint32_t>(word(0)) == PlainWord(Kind::kFlowData) && header.call_id == 0;
}

// As Decode(), for such a message. Checks a copy of the header, because the peer may change the received bytes meanwhile.
inline bool DecodePlain(std::span<const std::byte> bytes, Header* header) {
  if (bytes.size() < kHeaderBytes) [[unlikely]]
    return false;
  std::memcpy(static_cast<void*>(header), bytes.data(), sizeof(*header));
  return IsPlain(*header, bytes.size());
}

}  // namespace internal

inline void EncodePlain(const PlainHeader& plain, uint32_t sequence, std::byte* destination) {
  const auto put = [destination](size_t offset, uint64_t word) {
    std::memcpy(destination + offset, &word, sizeof(word));
  };
  put(0, internal::PlainWord(plain.kind));
  put(offsetof(Header, sequence), sequence);
  put(offsetof(Header, call_id), plain.call_id);
  put(offsetof(Header, method_id), plain.method_id);
  put(offsetof(Header, timeout_ns), plain.timeout_ns);
  put(offsetof(Header, payload_bytes), plain.payload_bytes);
}

inline void EncodePlain(const FlowDataHeader& data, uint32_t sequence, std::byte* destination) {
  const auto put = [destination](size_t offset, uint64_t word) {
    std::memcpy(destination + offset, &word, sizeof(word));
  };
  put(0, internal::PlainWord(Kind::kFlowData) | uint64_t{data.flow_id} << 32);
  put(offsetof(Header, sequence), sequence | uint64_t{data.flow_window} << 32);
  put(offsetof(Header, call_id), 0);
  put(offsetof(Header, method_id), 0);
  put(offsetof(Header, timeout_ns), 0);
  put(offsetof(Header, payload_bytes), data.payload_bytes);
}

inline Fault Decode(std::span<const std::byte> bytes, Header* header) {
  return internal::DecodePlain(bytes, header) ? Fault::kNone : internal::DecodeAny(bytes, header);
}

inline Parts Split(const Header& header, std::span<const std::byte> payload) {
  if ((header.flags & (kFlagMetadata | kFlagAttachment)) != 0) [[unlikely]]
    return internal::SplitAny(header, payload);
  return {{}, {}, payload};
}

inline std::byte* PutMetadata(std::string_view metadata, Header& header, std::byte* payload) {
  return metadata.empty() ? payload : internal::PutSomeMetadata(metadata, header, payload);
}

inline std::byte* PutAttachment(std::span<const std::byte> attachment, Header& header,
                                std::byte* payload) {
  return attachment.empty() ? payload : internal::PutSomeAttachment(attachment, header, payload);
}

}  // namespace sluice::frame

#endif  // SLUICE_MIDDLEWARE_FRAME_FRAME_H_

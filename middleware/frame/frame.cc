// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/frame.h"

namespace sluice::frame {

std::string_view Explain(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "no fault";
    case Fault::kTooShort:
      return "message is shorter than a header";
    case Fault::kOtherVersion:
      return "unknown version of the wire format";
    case Fault::kKind:
      return "unknown kind of message";
    case Fault::kReserved:
      return "reserved bits are set, or flags where they do not belong";
    case Fault::kFlow:
      return "flow number or window where none belongs";
    case Fault::kPayloadLength:
      return "payload length does not match the message";
    case Fault::kMethod:
      return "request without a method, or another message with one";
    case Fault::kTimeout:
      return "timeout out of range, or not in a request";
    case Fault::kStatus:
      return "status code out of range, or where none belongs";
    case Fault::kCall:
      return "number of a call or flow out of range, or where none belongs";
    case Fault::kPayload:
      return "payload where none belongs, or a flow without a name";
    case Fault::kMetadata:
      return "metadata longer than its message, or than the limit";
    case Fault::kPlace:
      return "place of a large message that can't be";
    case Fault::kAttachment:
      return "attachment that is empty, or longer than its message";
  }
  return "unknown fault";
}

namespace {

Fault CheckFlow(const Header& header) {
  const bool open = header.kind == Kind::kFlowOpen;
  const bool close = header.kind == Kind::kFlowClose;
  const bool introduces = open || header.kind == Kind::kFlowAccept;
  if (open && header.flow_id != 0) return Fault::kFlow;
  if (close && header.flow_window != 0) return Fault::kFlow;
  if (header.call_id > (introduces ? UINT32_MAX : 0)) return Fault::kCall;
  if (header.method_id != 0) return Fault::kMethod;
  if (header.timeout_ns != 0) return Fault::kTimeout;
  if (header.status_code > (close ? kMaxStatusCode : 0)) return Fault::kStatus;
  if (header.kind == Kind::kFlowData || header.status_code != 0) return Fault::kNone;
  if (!open) return header.payload_bytes == 0 ? Fault::kNone : Fault::kPayload;
  const bool fits = header.payload_bytes >= 2 && header.payload_bytes <= 1 + kMaxEndNameBytes;
  return fits ? Fault::kNone : Fault::kPayload;
}

// Checks kCancel, the messages of a stream, kDrain and kTaken.
Fault CheckOfCall(const Header& header) {
  if (header.kind == Kind::kDrain && header.call_id != 0) return Fault::kCall;
  const bool window = header.kind == Kind::kStreamData || header.kind == Kind::kStreamWindow;
  if (header.flow_id != 0 || (header.flow_window != 0 && !window)) return Fault::kFlow;
  if (header.method_id != 0) return Fault::kMethod;
  if (header.timeout_ns != 0) return Fault::kTimeout;
  if (header.status_code != 0) return Fault::kStatus;
  const bool metadata = (header.flags & kFlagMetadata) != 0;  // then the payload is metadata only
  if (header.payload_bytes != 0 && header.kind != Kind::kStreamData && !metadata) {
    return Fault::kPayload;
  }
  if (header.kind == Kind::kTaken && header.call_id > kNothingTaken) return Fault::kCall;
  return Fault::kNone;
}

int KnownFlags(const Header& header) {
  switch (header.kind) {
    case Kind::kRequest:
      return kFlagMetadata | kFlagAttachment | kFlagClientStreams | kFlagServerStreams | kFlagLarge;
    case Kind::kReply:
      return kFlagMetadata |
             (header.status_code == 0 ? kFlagAttachment | kFlagLarge : int{kFlagNotRun});
    case Kind::kStreamData:
    case Kind::kFlowData:
      return kFlagLarge;
    case Kind::kStreamMetadata:
      return kFlagMetadata;
    case Kind::kDrain:
      return kFlagRest;
    default:
      return 0;
  }
}

// Checks the metadata, and removes it from the front of `payload`.
Fault CheckMetadata(std::span<const std::byte>* payload) {
  uint16_t size = 0;
  if (payload->size() < sizeof(size)) return Fault::kMetadata;
  std::memcpy(&size, payload->data(), sizeof(size));
  if (size > kMaxMetadataBytes || size > payload->size() - sizeof(size)) return Fault::kMetadata;
  *payload = payload->subspan(sizeof(size) + size);
  return Fault::kNone;
}

Fault CheckFlags(const Header& header, std::span<const std::byte> payload) {
  if ((header.flags & ~KnownFlags(header)) != 0) return Fault::kReserved;
  if (header.flags & kFlagLarge) {
    if (payload.size() != kPlaceBytes) return Fault::kPlace;
    const uint64_t bytes = PlaceIn(payload).bytes;
    return bytes != 0 && bytes <= UINT32_MAX ? Fault::kNone : Fault::kPlace;
  }
  if (header.flags & kFlagMetadata) {
    const Fault fault = CheckMetadata(&payload);
    if (fault != Fault::kNone) return fault;
    if (header.kind == Kind::kStreamMetadata && !payload.empty()) return Fault::kPayload;
  }
  if (!(header.flags & kFlagAttachment)) return Fault::kNone;
  uint32_t size = 0;
  if (payload.size() < sizeof(size)) return Fault::kAttachment;
  std::memcpy(&size, payload.data(), sizeof(size));
  return size != 0 && size <= payload.size() - sizeof(size) ? Fault::kNone : Fault::kAttachment;
}

}  // namespace

Parts internal::SplitAny(const Header& header, std::span<const std::byte> payload) {
  Parts parts;
  if (header.flags & kFlagMetadata) {
    uint16_t size = 0;
    std::memcpy(&size, payload.data(), sizeof(size));
    parts.metadata = payload.subspan(sizeof(size), size);
    payload = payload.subspan(sizeof(size) + size);
  }
  if (header.flags & kFlagAttachment) {
    uint32_t size = 0;
    std::memcpy(&size, payload.data(), sizeof(size));
    parts.attachment = payload.subspan(sizeof(size), size);
    payload = payload.subspan(sizeof(size) + size);
  }
  parts.message = payload;
  return parts;
}

std::byte* internal::PutSomeMetadata(std::string_view metadata, Header& header,
                                     std::byte* payload) {
  header.flags |= kFlagMetadata;
  const auto size = static_cast<uint16_t>(metadata.size());
  std::memcpy(payload, &size, sizeof(size));
  std::memcpy(payload + sizeof(size), metadata.data(), size);
  return payload + sizeof(size) + size;
}

std::byte* internal::PutSomeAttachment(std::span<const std::byte> attachment, Header& header,
                                       std::byte* payload) {
  header.flags |= kFlagAttachment;
  const auto size = static_cast<uint32_t>(attachment.size());
  std::memcpy(payload, &size, sizeof(size));
  if (payload + sizeof(size) != attachment.data()) {
    std::memcpy(payload + sizeof(size), attachment.data(), size);
  }
  return payload + sizeof(size) + size;
}

Fault Complete(Header* header, std::span<const std::byte> payload) {
  header->flags &= static_cast<uint16_t>(~kFlagLarge);
  header->payload_bytes = static_cast<uint32_t>(payload.size());
  return header->flags == 0 ? Fault::kNone : CheckFlags(*header, payload);
}

Fault internal::DecodeAny(std::span<const std::byte> bytes, Header* header) {
  if (bytes.size() < kHeaderBytes) return Fault::kTooShort;
  std::memcpy(header, bytes.data(), sizeof(*header));
  if (header->version != kVersion) return Fault::kOtherVersion;
  if (header->reserved != 0) return Fault::kReserved;
  if (header->payload_bytes != bytes.size() - kHeaderBytes) return Fault::kPayloadLength;
  if (header->flags != 0) {
    const Fault fault = CheckFlags(*header, bytes.subspan(kHeaderBytes));
    if (fault != Fault::kNone) return fault;
  }
  if (header->kind >= Kind::kFlowOpen && header->kind <= Kind::kFlowClose) {
    return CheckFlow(*header);
  }
  if (header->kind >= Kind::kCancel && header->kind <= Kind::kStreamMetadata) {
    return CheckOfCall(*header);
  }
  const bool window = header->kind == Kind::kRequest && (header->flags & kFlagServerStreams) != 0;
  if (header->flow_id != 0 || (header->flow_window != 0 && !window)) return Fault::kFlow;
  switch (header->kind) {
    case Kind::kRequest:
      if (header->method_id == 0) return Fault::kMethod;
      if (header->timeout_ns > kMaxTimeoutNs) return Fault::kTimeout;
      if (header->status_code != 0) return Fault::kStatus;
      return Fault::kNone;
    case Kind::kReply:
      if (header->method_id != 0) return Fault::kMethod;
      if (header->timeout_ns != 0) return Fault::kTimeout;
      if (header->status_code > kMaxStatusCode) return Fault::kStatus;
      return Fault::kNone;
    default:
      return Fault::kKind;
  }
}

}  // namespace sluice::frame

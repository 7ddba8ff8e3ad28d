// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/frame.h"

namespace sluice::frame {

std::string_view Explain(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "no fault";
    case Fault::kTooShort:
      return "message is shorter than a header";
    case Fault::kVersion:
      return "unknown version of the wire format";
    case Fault::kKind:
      return "unknown kind of message";
    case Fault::kReserved:
      return "reserved bits are set";
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

}  // namespace

Fault Decode(std::span<const std::byte> bytes, Header* header) {
  if (bytes.size() < kHeaderBytes) return Fault::kTooShort;
  std::memcpy(header, bytes.data(), sizeof(*header));
  if (header->version != kVersion) return Fault::kVersion;
  if (header->flags != 0 || header->reserved != 0) return Fault::kReserved;
  if (header->payload_bytes != bytes.size() - kHeaderBytes) return Fault::kPayloadLength;
  if (header->kind >= Kind::kFlowOpen && header->kind <= Kind::kFlowClose) {
    return CheckFlow(*header);
  }
  if (header->flow_id != 0 || header->flow_window != 0) return Fault::kFlow;
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

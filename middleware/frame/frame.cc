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
      return "flow is not open";
    case Fault::kPayloadLength:
      return "payload length does not match the message";
    case Fault::kMethod:
      return "request without a method, or reply with one";
    case Fault::kTimeout:
      return "timeout out of range, or in a reply";
    case Fault::kStatus:
      return "status code out of range, or in a request";
  }
  return "unknown fault";
}

Fault Decode(std::span<const std::byte> bytes, Header* header) {
  if (bytes.size() < kHeaderBytes) return Fault::kTooShort;
  std::memcpy(header, bytes.data(), sizeof(*header));
  if (header->version != kVersion) return Fault::kVersion;
  if (header->flags != 0 || header->reserved != 0) return Fault::kReserved;
  if (header->flow_id != 0 || header->flow_window != 0) return Fault::kFlow;
  if (header->payload_bytes != bytes.size() - kHeaderBytes) return Fault::kPayloadLength;
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
  }
  return Fault::kKind;
}

}  // namespace sluice::frame

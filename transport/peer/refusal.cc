// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/refusal.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "transport/base/error.h"
#include "transport/peer/handshake.h"
#include "transport/peer/wire.h"

namespace sluice::peer {
namespace {

struct Meaning {
  absl::StatusCode status;
  const char* remedy;
};

Meaning MeaningOf(RefusalCode code) {
  using C = absl::StatusCode;
  switch (code) {
    case RefusalCode::kVersion:
      return {C::kFailedPrecondition, "run the same release of Sluice on both sides"};
    case RefusalCode::kGarbage:
      return {C::kInvalidArgument, "run the same release of Sluice on both sides"};
    case RefusalCode::kFull:
      return {C::kResourceExhausted, "retry later, or raise the limit that the server names"};
    case RefusalCode::kShutdown:
      return {C::kUnavailable, "reconnect when the peer is running again"};
    case RefusalCode::kUnauthenticated:
      return {C::kUnauthenticated, "give both sides the same secret (secret_file)"};
    case RefusalCode::kTooOften:
      return {C::kResourceExhausted,
              "find the process at this address whose handshakes fail, and retry in a second"};
    case RefusalCode::kCookie:
      return {C::kResourceExhausted, "retry later: the server is under load"};
    case RefusalCode::kPlace:
      return {C::kFailedPrecondition,
              "connect to the address that the server's device has, or start the server with "
              "--device and the address that clients connect to"};
    case RefusalCode::kPathMtu:
      return {C::kFailedPrecondition,
              "set limits.path_mtu to the same value on both sides, and give both ports at least "
              "that MTU"};
    case RefusalCode::kTransport:
      return {C::kFailedPrecondition,
              "start the side with DC with \"/rc\" at the end of its device (--device=auto/rc)"};
    case RefusalCode::kNone:
    case RefusalCode::kInternal:
      break;
  }
  return {C::kUnavailable, "read the server's log"};
}

bool IsRefusal(Bytes bytes) {
  return bytes.size() >= 8 && Load<uint32_t>(bytes.data()) == kMagic &&
         Load<uint8_t>(bytes.data() + 5) == static_cast<uint8_t>(HandshakeKind::kRefusal);
}

}  // namespace

RefusalCode CodeFor(const absl::Status& why) {
  switch (why.code()) {
    case absl::StatusCode::kFailedPrecondition:
      return RefusalCode::kVersion;
    case absl::StatusCode::kInvalidArgument:
      return RefusalCode::kGarbage;
    case absl::StatusCode::kUnauthenticated:
      return RefusalCode::kUnauthenticated;
    case absl::StatusCode::kResourceExhausted:
      return RefusalCode::kFull;
    default:
      return RefusalCode::kInternal;
  }
}

std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text) {
  const size_t length = std::min(text.size(), kMaxRefusalText);
  std::vector<std::byte> out(8 + length);
  Store<uint32_t>(out.data(), kMagic);
  Store<uint8_t>(out.data() + 4, kProtocolVersion);
  Store<uint8_t>(out.data() + 5, static_cast<uint8_t>(HandshakeKind::kRefusal));
  Store<uint8_t>(out.data() + 6, static_cast<uint8_t>(code));
  Store<uint8_t>(out.data() + 7, static_cast<uint8_t>(length));
  std::memcpy(out.data() + 8, text.data(), length);
  return out;
}

std::vector<std::byte> EncodeRefusal(const absl::Status& why) {
  return EncodeRefusal(CodeFor(why), {why.message().data(), why.message().size()});
}

std::vector<std::byte> EncodeRefusal(const Cookie& cookie) {
  return EncodeRefusal(RefusalCode::kCookie,
                       {reinterpret_cast<const char*>(cookie.data()), cookie.size()});
}

std::optional<Cookie> CookieIn(Bytes bytes) {
  if (!IsRefusal(bytes) || bytes.size() < 8 + kCookieBytes ||
      Load<uint8_t>(bytes.data() + 4) != kProtocolVersion ||
      Load<uint8_t>(bytes.data() + 6) != static_cast<uint8_t>(RefusalCode::kCookie) ||
      Load<uint8_t>(bytes.data() + 7) != kCookieBytes) {
    return std::nullopt;
  }
  Cookie cookie;
  std::copy_n(bytes.begin() + 8, kCookieBytes, cookie.begin());
  return cookie;
}

bool IsRefusalWith(Bytes bytes, RefusalCode code) {
  return IsRefusal(bytes) && Load<uint8_t>(bytes.data() + 6) == static_cast<uint8_t>(code);
}

absl::Status RefusalStatus(RefusalCode code, const std::string& peer, const std::string& cause) {
  const Meaning meaning = MeaningOf(code);
  return base::Error(meaning.status, "connection refused by the server",
                     {.layer = "peer",
                      .peer = peer,
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = meaning.remedy,
                      .vendor_code = static_cast<uint32_t>(code),
                      .retry_safe = true});
}

absl::Status DecodeRefusal(Bytes bytes, const std::string& peer, const absl::Status& fallback) {
  if (!IsRefusal(bytes)) return fallback;
  const uint8_t version = Load<uint8_t>(bytes.data() + 4);
  const auto code = static_cast<RefusalCode>(Load<uint8_t>(bytes.data() + 6));
  if (code == RefusalCode::kVersion) {
    return RefusalStatus(code, peer,
                         "protocol version mismatch: this side speaks version " +
                             std::to_string(kProtocolVersion) + ", the server version " +
                             std::to_string(version));
  }
  if (code == RefusalCode::kCookie) {
    return RefusalStatus(code, peer, "the server has asked for a cookie time and again");
  }
  const size_t length =
      std::min({size_t{Load<uint8_t>(bytes.data() + 7)}, bytes.size() - 8, kMaxRefusalText});
  std::string text(reinterpret_cast<const char*>(bytes.data() + 8), length);
  for (char& c : text) {
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';  // the text came from the wire
  }
  return RefusalStatus(code, peer, "the server says: " + text);
}

}  // namespace sluice::peer

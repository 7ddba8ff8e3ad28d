// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/handshake.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "transport/base/error.h"
#include "transport/peer/wire.h"

namespace sluice::peer {
namespace {

constexpr uint32_t kMaxQpn = (1u << 24) - 1;
constexpr uint32_t kMaxCredits = 1u << 20;

absl::Status Garbage(const char* cause) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     "the other side's handshake is not one of Sluice",
                     {.layer = "peer",
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = "check that the program at that port is a Sluice endpoint"});
}

void EncodeHeader(std::byte* out, HandshakeKind kind) {
  Store<uint32_t>(out, kMagic);
  Store<uint8_t>(out + 4, kProtocolVersion);
  Store<uint8_t>(out + 5, static_cast<uint8_t>(kind));
}

}  // namespace

std::array<std::byte, kHelloBytes> Encode(const Hello& hello, HandshakeKind kind) {
  std::array<std::byte, kHelloBytes> out = {};
  EncodeHeader(out.data(), kind);
  Store(out.data() + 8, hello.epoch);
  Store(out.data() + 16, hello.data_dctn);
  Store(out.data() + 20, hello.control_dctn);
  Store(out.data() + 24, hello.data_key);
  Store(out.data() + 32, hello.control_key);
  Store(out.data() + 40, hello.max_message_bytes);
  Store(out.data() + 44, hello.peer_index);
  Store(out.data() + 48, hello.token);
  Store(out.data() + 52, hello.credits);
  return out;
}

absl::StatusOr<Hello> Decode(std::span<const std::byte> bytes, HandshakeKind kind) {
  if (bytes.size() < 8) return Garbage("it is shorter than any handshake");
  const std::byte* in = bytes.data();
  if (Load<uint32_t>(in) != kMagic) return Garbage("it does not begin with Sluice's magic number");
  const uint8_t version = Load<uint8_t>(in + 4);
  if (version != kProtocolVersion) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       "protocol version mismatch: this side speaks version " +
                           std::to_string(kProtocolVersion) + ", the other side version " +
                           std::to_string(version),
                       {.layer = "peer",
                        .operation = "handshake",
                        .cause = "the two programs were built from different releases of Sluice",
                        .remedy = "run the same release on both sides"});
  }
  if (Load<uint8_t>(in + 5) != static_cast<uint8_t>(kind)) {
    return Garbage("it is of a kind that does not belong here");
  }
  if (bytes.size() < kHelloBytes) return Garbage("it is cut short");
  Hello hello;
  hello.epoch = Load<uint64_t>(in + 8);
  hello.data_dctn = Load<uint32_t>(in + 16);
  hello.control_dctn = Load<uint32_t>(in + 20);
  hello.data_key = Load<uint64_t>(in + 24);
  hello.control_key = Load<uint64_t>(in + 32);
  hello.max_message_bytes = Load<uint32_t>(in + 40);
  hello.peer_index = Load<uint32_t>(in + 44);
  hello.token = Load<uint32_t>(in + 48);
  hello.credits = Load<uint32_t>(in + 52);
  if (Load<uint16_t>(in + 6) != 0) return Garbage("a reserved field is not zero");
  if (hello.data_dctn == 0 || hello.data_dctn > kMaxQpn || hello.control_dctn == 0 ||
      hello.control_dctn > kMaxQpn) {
    return Garbage("a DCT number is out of range");
  }
  if (hello.token == 0) return Garbage("its token is zero");
  if (hello.max_message_bytes == 0) return Garbage("it takes no messages");
  if (hello.credits == 0 || hello.credits > kMaxCredits) return Garbage("its credits are absurd");
  return hello;
}

RefusalCode CodeFor(const absl::Status& why) {
  return why.code() == absl::StatusCode::kFailedPrecondition ? RefusalCode::kVersion
                                                             : RefusalCode::kGarbage;
}

std::vector<std::byte> EncodeRefusal(RefusalCode code, std::string_view text) {
  const size_t length = std::min(text.size(), kMaxRefusalText);
  std::vector<std::byte> out(8 + length);
  EncodeHeader(out.data(), HandshakeKind::kRefusal);
  Store<uint8_t>(out.data() + 6, static_cast<uint8_t>(code));
  Store<uint8_t>(out.data() + 7, static_cast<uint8_t>(length));
  std::memcpy(out.data() + 8, text.data(), length);
  return out;
}

absl::Status DecodeRefusal(std::span<const std::byte> bytes, const std::string& peer,
                           const absl::Status& fallback) {
  if (bytes.size() < 8 || Load<uint32_t>(bytes.data()) != kMagic ||
      Load<uint8_t>(bytes.data() + 5) != static_cast<uint8_t>(HandshakeKind::kRefusal)) {
    return fallback;
  }
  const uint8_t version = Load<uint8_t>(bytes.data() + 4);
  const uint8_t code = Load<uint8_t>(bytes.data() + 6);
  const size_t length =
      std::min({size_t{Load<uint8_t>(bytes.data() + 7)}, bytes.size() - 8, kMaxRefusalText});
  std::string text(reinterpret_cast<const char*>(bytes.data() + 8), length);
  for (char& c : text) {
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';  // it came from the wire
  }
  absl::StatusCode status_code = absl::StatusCode::kUnavailable;
  std::string cause = "the server says: " + text;
  std::string remedy = "look at the server's log";
  switch (static_cast<RefusalCode>(code)) {
    case RefusalCode::kVersion:
      status_code = absl::StatusCode::kFailedPrecondition;
      cause = "protocol version mismatch: this side speaks version " +
              std::to_string(kProtocolVersion) + ", the server version " + std::to_string(version);
      remedy = "run the same release of Sluice on both sides";
      break;
    case RefusalCode::kGarbage:
      status_code = absl::StatusCode::kInvalidArgument;
      remedy = "run the same release of Sluice on both sides";
      break;
    case RefusalCode::kFull:
      status_code = absl::StatusCode::kResourceExhausted;
      remedy = "try again later, or raise srq_size and max_peers of the server";
      break;
    case RefusalCode::kShutdown:
      remedy = "connect again when it is back";
      break;
    case RefusalCode::kInternal:
      break;
  }
  return base::Error(status_code, "connection refused by the server",
                     {.layer = "peer",
                      .peer = peer,
                      .operation = "handshake",
                      .cause = cause,
                      .remedy = remedy,
                      .vendor_code = code,
                      .retry_safe = true});
}

}  // namespace sluice::peer

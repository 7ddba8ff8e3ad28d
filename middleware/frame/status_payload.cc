// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/status_payload.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/error_detail.pb.h"
#include "transport/base/error.h"

namespace sluice::frame {
namespace {

constexpr uint32_t kTextLengthBytes = 2;
constexpr char kCut[] = "...";
constexpr uint32_t kCutBytes = sizeof(kCut) - 1;

// Not inside a UTF-8 sequence: the first byte that is cut off is not a continuation byte.
size_t CutAt(absl::string_view text, size_t limit) {
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xc0) == 0x80) --limit;
  return limit;
}

std::string Bounded(absl::string_view text, uint32_t limit) {
  if (text.size() <= limit) return std::string(text);
  if (limit < kCutBytes) return std::string(text.substr(0, CutAt(text, limit)));
  return std::string(text.substr(0, CutAt(text, limit - kCutBytes))) + kCut;
}

}  // namespace

std::string EncodeStatus(const absl::Status& status, uint32_t limit_bytes) {
  assert(!status.ok() && limit_bytes >= kTextLengthBytes);
  const uint32_t room = limit_bytes - kTextLengthBytes;
  const std::string text = Bounded(status.message(), std::min(room, kMaxStatusTextBytes));
  const auto text_bytes = static_cast<uint16_t>(text.size());
  std::string payload(reinterpret_cast<const char*>(&text_bytes), sizeof(text_bytes));
  payload += text;
  const absl::optional<absl::Cord> detail = status.GetPayload(base::kErrorDetailUrl);
  if (detail.has_value() && detail->size() <= kMaxStatusDetailBytes &&
      detail->size() <= room - text.size()) {
    payload += std::string(*detail);
  }
  return payload;
}

absl::Status DecodeStatus(uint16_t code, std::span<const std::byte> payload) {
  assert(code != 0);
  const auto status_code = static_cast<absl::StatusCode>(code);
  const auto broken = [&](const char* what) { return absl::Status(status_code, what); };
  uint16_t text_bytes = 0;
  if (payload.size() < sizeof(text_bytes)) return broken("error reply without a text");
  std::memcpy(&text_bytes, payload.data(), sizeof(text_bytes));
  payload = payload.subspan(sizeof(text_bytes));
  if (text_bytes > payload.size() || text_bytes > kMaxStatusTextBytes) {
    return broken("error reply with a text longer than the message");
  }
  absl::Status status(status_code,
                      absl::string_view(reinterpret_cast<const char*>(payload.data()), text_bytes));
  payload = payload.subspan(text_bytes);
  ErrorDetail detail;
  if (!payload.empty() && payload.size() <= kMaxStatusDetailBytes &&
      detail.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    status.SetPayload(base::kErrorDetailUrl,
                      absl::Cord(absl::string_view(reinterpret_cast<const char*>(payload.data()),
                                                   payload.size())));
  }
  return status;
}

}  // namespace sluice::frame

// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/status_conversion.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/gateway/rpc_status.pb.h"

namespace sluice::gateway {
namespace {

constexpr size_t kMaxTextBytes = 2048;  // of trailers
constexpr size_t kNoteBytes = 80;

// The text stands in the trailers twice: with %XX for what is not printable ASCII, and in Base64.
size_t TrailerBytes(absl::string_view text) {
  size_t bytes = 0;
  for (const char c : text) bytes += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
  return bytes + text.size() * 4 / 3;
}

std::string Shortened(absl::string_view text) {
  if (TrailerBytes(text) <= kMaxTextBytes) return std::string(text);
  size_t kept = text.size();
  while (TrailerBytes(text.substr(0, kept)) > kMaxTextBytes - kNoteBytes) kept -= kept / 16 + 1;
  while (kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xc0) == 0x80) --kept;
  return absl::StrCat(text.substr(0, kept), "... [text of ", text.size(), " bytes]");
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::vector<std::pair<std::string, std::string>> payloads;
  status.ForEachPayload([&payloads](absl::string_view url, const absl::Cord& value) {
    payloads.emplace_back(std::string(url), std::string(value));
  });
  std::sort(payloads.begin(), payloads.end());  // absl::Status has them in no order
  RpcStatus details;
  details.set_code(static_cast<int>(status.code()));
  std::string text = Shortened(status.message());
  size_t left = kMaxStatusBytes - TrailerBytes(text) - kNoteBytes;
  size_t omitted = 0, omitted_bytes = 0;
  for (auto& [url, value] : payloads) {
    constexpr size_t kTags = 16;
    const size_t bytes = (url.size() + value.size() + kTags) * 4 / 3;
    if (bytes > left) {
      ++omitted;
      omitted_bytes += value.size();
      continue;
    }
    left -= bytes;
    RpcStatus::Detail* const detail = details.add_details();
    detail->set_type_url(std::move(url));
    detail->set_value(std::move(value));
  }
  if (omitted > 0) {
    absl::StrAppend(&text, " [", omitted, " of ", payloads.size(), " details omitted, ",
                    omitted_bytes, " bytes]");
  }
  details.set_message(text);
  const auto code = static_cast<grpc::StatusCode>(status.code());
  return grpc::Status(code, text,
                      details.details_size() == 0 ? std::string() : details.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status converted(static_cast<absl::StatusCode>(status.error_code()),
                         status.error_message());
  RpcStatus details;
  if (details.ParseFromString(status.error_details())) {
    for (const RpcStatus::Detail& detail : details.details()) {
      converted.SetPayload(detail.type_url(), absl::Cord(detail.value()));
    }
  }
  return converted;
}

}  // namespace sluice::gateway

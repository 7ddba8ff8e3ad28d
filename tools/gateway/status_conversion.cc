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

constexpr size_t kTextBytes = 2048;  // of trailers, which the text has whatever the details need
constexpr size_t kNoteBytes = 80;

// With %XX for what is not printable ASCII. With details a second time, in Base64.
size_t TrailerBytes(absl::string_view text, bool details) {
  size_t bytes = 0;
  for (const char c : text) bytes += c >= ' ' && c <= '~' && c != '%' ? 1 : 3;
  return bytes + (details ? text.size() * 4 / 3 : 0);
}

std::string Shortened(absl::string_view text, size_t limit, bool details) {
  if (TrailerBytes(text, details) <= limit) return std::string(text);
  size_t kept = text.size();
  while (TrailerBytes(text.substr(0, kept), details) > limit - kNoteBytes) kept -= kept / 16 + 1;
  // A character of UTF-8 has at most three bytes after its first; a text of other bytes is cut anywhere.
  for (int i = 0; i < 3 && kept > 0 && (static_cast<unsigned char>(text[kept]) & 0xc0) == 0x80; ++i)
    --kept;
  return absl::StrCat(text.substr(0, kept), "... [text of ", text.size(), " bytes]");
}

// A type URL without the number that FromGrpc() adds.
std::string WithoutNumber(std::string url) {
  const size_t mark = url.rfind('#');
  if (mark == std::string::npos || mark + 1 == url.size()) return url;
  if (url.find_first_not_of("0123456789", mark + 1) == std::string::npos) url.resize(mark);
  return url;
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
  const size_t text_bytes = std::min(kTextBytes, TrailerBytes(status.message(), !payloads.empty()));
  size_t left = kMaxStatusBytes - kNoteBytes - text_bytes;
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
    detail->set_type_url(WithoutNumber(std::move(url)));
    detail->set_value(std::move(value));
  }
  std::string text = Shortened(status.message(), left + text_bytes, details.details_size() > 0);
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
      std::string url = detail.type_url();
      for (int number = 2; converted.GetPayload(url).has_value(); ++number) {
        url = absl::StrCat(detail.type_url(), "#", number);
      }
      converted.SetPayload(url, absl::Cord(detail.value()));
    }
  }
  return converted;
}

}  // namespace sluice::gateway

// SPDX-License-Identifier: Apache-2.0
#include "transport/base/status_detail.h"

#include "absl/status/status_payload_printer.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "transport/base/error.h"

namespace sluice::base {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Numbers of proto/error_detail.proto.
enum Field : int {
  kLayer = 1,
  kOperation = 2,
  kPeer = 3,
  kSyndrome = 4,
  kVendorCode = 5,
  kCause = 6,
  kRemedy = 7,
  kRetrySafe = 8,
};

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendText(Field field, std::string_view text, std::string* out) {
  if (text.empty()) return;
  AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED), out);
  AppendVarint(text.size(), out);
  out->append(text);
}

void AppendNumber(Field field, uint32_t number, std::string* out) {
  if (number == 0) return;
  AppendVarint(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_VARINT), out);
  AppendVarint(number, out);
}

bool ReadText(CodedInputStream* in, std::string* text) {
  uint32_t bytes = 0;
  return in->ReadVarint32(&bytes) && bytes <= INT32_MAX &&
         in->ReadString(text, static_cast<int>(bytes));
}

// As in protobuf, a known field with an unexpected wire type counts as an unknown field.
constexpr uint32_t TextTag(Field field) {
  return static_cast<uint32_t>(field) << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
}
constexpr uint32_t NumberTag(Field field) {
  return static_cast<uint32_t>(field) << 3 | WireFormatLite::WIRETYPE_VARINT;
}

absl::optional<std::string> Print(absl::string_view url, const absl::Cord& payload) {
  if (url != kErrorDetailUrl) return absl::nullopt;
  const auto detail = StatusDetail::Parse(std::string(payload));
  if (!detail.has_value()) return absl::nullopt;
  std::string text;
  const auto add = [&text](absl::string_view name, const auto& value) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, value);
  };
  if (!detail->layer().empty()) add("layer ", detail->layer());
  if (!detail->operation().empty()) add("operation ", detail->operation());
  if (!detail->peer().empty()) add("peer ", detail->peer());
  if (detail->syndrome() != 0) add("syndrome ", detail->syndrome());
  if (detail->vendor_code() != 0) add("vendor code ", detail->vendor_code());
  add("", detail->retry_safe() ? "safe to retry" : "may have run");
  return absl::Utf8SafeCHexEscape(text);  // the text may come from a peer
}

}  // namespace

StatusDetail::StatusDetail(const ErrorContext& context)
    : layer_(context.layer),
      operation_(context.operation),
      peer_(context.peer),
      cause_(context.cause),
      remedy_(context.remedy),
      syndrome_(context.syndrome),
      vendor_code_(context.vendor_code),
      retry_safe_(context.retry_safe) {}

std::string StatusDetail::Serialise() const {
  std::string bytes;
  AppendText(kLayer, layer_, &bytes);
  AppendText(kOperation, operation_, &bytes);
  AppendText(kPeer, peer_, &bytes);
  AppendNumber(kSyndrome, syndrome_, &bytes);
  AppendNumber(kVendorCode, vendor_code_, &bytes);
  AppendText(kCause, cause_, &bytes);
  AppendText(kRemedy, remedy_, &bytes);
  AppendNumber(kRetrySafe, retry_safe_ ? 1 : 0, &bytes);
  return bytes;
}

std::optional<StatusDetail> StatusDetail::Parse(std::string_view bytes) {
  CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                      static_cast<int>(bytes.size()));
  StatusDetail detail;
  uint64_t truth = 0;
  while (const uint32_t tag = in.ReadTag()) {
    bool read = false;
    switch (tag) {
      case TextTag(kLayer):
        read = ReadText(&in, &detail.layer_);
        break;
      case TextTag(kOperation):
        read = ReadText(&in, &detail.operation_);
        break;
      case TextTag(kPeer):
        read = ReadText(&in, &detail.peer_);
        break;
      case NumberTag(kSyndrome):
        read = in.ReadVarint32(&detail.syndrome_);
        break;
      case NumberTag(kVendorCode):
        read = in.ReadVarint32(&detail.vendor_code_);
        break;
      case TextTag(kCause):
        read = ReadText(&in, &detail.cause_);
        break;
      case TextTag(kRemedy):
        read = ReadText(&in, &detail.remedy_);
        break;
      case NumberTag(kRetrySafe):
        read = in.ReadVarint64(&truth);
        detail.retry_safe_ = truth != 0;
        break;
      default:
        read = WireFormatLite::SkipField(&in, tag);
    }
    if (!read) return std::nullopt;
  }
  // False if ReadTag() stopped at an invalid tag.
  if (!in.ConsumedEntireMessage()) return std::nullopt;
  return detail;
}

std::optional<StatusDetail> DetailOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorDetailUrl);
  if (!payload.has_value()) return std::nullopt;
  return StatusDetail::Parse(std::string(*payload));
}

bool IsRetrySafe(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail.has_value() && detail->retry_safe();
}

void PrintDetailsAsText() {
  static const bool set = [] {
    if (absl::status_internal::GetStatusPayloadPrinter() != nullptr) return false;
    absl::status_internal::SetStatusPayloadPrinter(&Print);
    return true;
  }();
  (void)set;
}

}  // namespace sluice::base

// SPDX-License-Identifier: Apache-2.0
//
// Grammar (W3C Trace Context, level 1): version "-" trace-id "-" parent-id "-" flags, of 2, 32, 16 and 2 lower-case
// hexadecimal digits. Version ff is invalid. In versions later than 00, "-" and more text may follow.
#include "middleware/api/trace_context.h"

#include "absl/strings/str_format.h"

namespace sluice {
namespace {

constexpr size_t kBytes = 55;

bool ReadHex(std::string_view digits, uint64_t* value) {
  *value = 0;
  for (const char c : digits) {
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && !(c >= 'a' && c <= 'f')) return false;
    *value = *value << 4 | static_cast<uint64_t>(decimal ? c - '0' : c - 'a' + 10);
  }
  return true;
}

}  // namespace

std::string TraceContext::ToString() const {
  return absl::StrFormat("00-%016x%016x-%016x-%02x", trace_id[0], trace_id[1], span_id, flags);
}

std::optional<TraceContext> TraceContext::Parse(std::string_view text) {
  if (text.size() < kBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  uint64_t version = 0;
  uint64_t flags = 0;
  TraceContext context;
  if (!ReadHex(text.substr(0, 2), &version) || !ReadHex(text.substr(3, 16), &context.trace_id[0]) ||
      !ReadHex(text.substr(19, 16), &context.trace_id[1]) ||
      !ReadHex(text.substr(36, 16), &context.span_id) || !ReadHex(text.substr(53, 2), &flags)) {
    return std::nullopt;
  }
  const bool ends = text.size() == kBytes || (version > 0 && text[kBytes] == '-');
  if (version == 0xff || !ends || (context.trace_id[0] | context.trace_id[1]) == 0 ||
      context.span_id == 0) {
    return std::nullopt;
  }
  context.flags = static_cast<uint8_t>(version == 0 ? flags : flags & 1);
  return context;
}

}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
//
// This file writes the JSON itself instead of using google.protobuf.Struct: under ThreadSanitizer, the layout of that class differs from
// the layout in the distribution's library.
#include "middleware/services/span_export.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// Returns a JSON string. Names and messages may have bytes of a peer: '?' replaces each character that is not printable ASCII.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) {
      quoted += '?';
      continue;
    }
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted += '"';
}

// Returns microseconds with three decimals.
std::string Microseconds(int64_t ns) {
  return absl::StrFormat("%.3f", static_cast<double>(ns) / 1e3);
}

std::string Attribute(const char* key, std::string_view text) {
  return absl::StrCat("{\"key\":\"", key, "\",\"value\":{\"stringValue\":", Quoted(text), "}}");
}

std::string TraceId(const Span& span) {
  return absl::StrFormat("%016x%016x", span.trace_id[0], span.trace_id[1]);
}
std::string SpanId(uint64_t id) { return absl::StrFormat("%016x", id); }

std::string OtlpSpan(const Span& span) {
  constexpr int kStatusError = 2;
  std::string out = absl::StrCat("{\"traceId\":\"", TraceId(span), "\",\"spanId\":\"",
                                 SpanId(span.span_id), "\",");
  if (span.parent_id != 0)
    absl::StrAppend(&out, "\"parentSpanId\":\"", SpanId(span.parent_id), "\",");
  // Times are strings, because a JSON number has only 53 bits.
  absl::StrAppend(&out, "\"name\":", Quoted(span.name), ",\"kind\":", static_cast<int>(span.kind),
                  ",\"startTimeUnixNano\":\"", span.start_unix_ns, "\",\"endTimeUnixNano\":\"",
                  span.end_unix_ns, "\"");
  if (span.kind != Span::Kind::kInternal) {
    const std::vector<std::string> name = absl::StrSplit(span.name, absl::MaxSplits('/', 1));
    absl::StrAppend(&out, ",\"attributes\":[", Attribute("rpc.system", "sluice"), ",",
                    Attribute("rpc.service", name.front()), ",",
                    Attribute("rpc.method", name.size() == 2 ? name.back() : ""), ",",
                    Attribute("network.peer.address", span.peer), ",",
                    Attribute("rpc.sluice.status", absl::StatusCodeToString(span.status.code())),
                    "]");
    if (!span.status.ok()) {
      absl::StrAppend(&out, ",\"status\":{\"code\":", kStatusError,
                      ",\"message\":", Quoted(std::string(span.status.message())), "}");
    }
  }
  return out += "}";
}

// Rows of the chart: a span is in the row of its parent of the same process. Calls that overlap are in different rows.
class Rows {
 public:
  explicit Rows(std::span<const Span> spans) {
    std::vector<const Span*> calls;
    for (const Span& span : spans) {
      if (span.kind != Span::Kind::kInternal) calls.push_back(&span);
    }
    std::stable_sort(calls.begin(), calls.end(), [](const Span* a, const Span* b) {
      return a->start_unix_ns < b->start_unix_ns;
    });
    std::vector<int64_t> free_from_ns;
    for (const Span* call : calls) {
      size_t row = 0;
      while (row < free_from_ns.size() && free_from_ns[row] > call->start_unix_ns) ++row;
      if (row == free_from_ns.size()) free_from_ns.push_back(0);
      free_from_ns[row] = call->end_unix_ns;
      rows_[call->span_id] = row;
    }
  }

  size_t Of(const Span& span) const {
    const auto found =
        rows_.find(span.kind == Span::Kind::kInternal ? span.parent_id : span.span_id);
    return found == rows_.end() ? 0 : found->second;
  }

 private:
  absl::flat_hash_map<uint64_t, size_t> rows_;  // by span
};

// Returns midnight of the day of the first span. A JSON number has 53 bits: microseconds since 1970 would leave no decimals.
int64_t MidnightNs(std::span<const Span> spans) {
  constexpr int64_t kDayNs = 86'400'000'000'000;
  int64_t first_ns = spans.empty() ? 0 : spans.front().start_unix_ns;
  for (const Span& span : spans) first_ns = std::min(first_ns, span.start_unix_ns);
  return first_ns / kDayNs * kDayNs;
}

}  // namespace

std::string SpansAsOtlp(std::string_view service, std::span<const Span> spans) {
  std::string out = absl::StrCat("{\"resourceSpans\":[{\"resource\":{\"attributes\":[",
                                 Attribute("service.name", service),
                                 "]},\"scopeSpans\":[{\"scope\":{\"name\":\"sluice\"},\"spans\":[");
  for (const Span& span : spans) {
    if (&span != spans.data()) out += ",";
    out += OtlpSpan(span);
  }
  return out += "]}]}]}";
}

std::string SpansAsChromeTrace(std::string_view service, uint32_t process_id,
                               std::span<const Span> spans) {
  const Rows rows(spans);
  const int64_t origin_ns = MidnightNs(spans);
  std::string out = absl::StrCat(
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"origin_unix_ns\":\"", origin_ns,
      "\"},\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":", process_id,
      ",\"args\":{\"name\":", Quoted(service), "}}");
  const auto begin = [&](const Span& span, const char* phase, std::string_view name) {
    absl::StrAppend(&out, ",{\"ph\":\"", phase, "\",\"name\":", Quoted(name),
                    ",\"cat\":\"sluice\",\"pid\":", process_id, ",\"tid\":", rows.Of(span) + 1,
                    ",\"ts\":", Microseconds(span.start_unix_ns - origin_ns));
  };
  for (const Span& span : spans) {
    begin(span, "X", span.name);
    absl::StrAppend(&out, ",\"dur\":", Microseconds(span.end_unix_ns - span.start_unix_ns));
    if (span.kind == Span::Kind::kInternal) {
      out += "}";
      continue;
    }
    absl::StrAppend(&out, ",\"args\":{\"trace\":\"", TraceId(span),
                    "\",\"peer\":", Quoted(span.peer), ",\"status\":",
                    Quoted(span.status.ToString(absl::StatusToStringMode::kWithNoExtraData)), "}}");
    const bool client = span.kind == Span::Kind::kClient;
    if (!client && span.parent_id == 0) continue;
    begin(span, client ? "s" : "f", "call");
    absl::StrAppend(&out, ",\"id\":\"", SpanId(client ? span.span_id : span.parent_id), "\"",
                    client ? "}" : ",\"bp\":\"e\"}");
  }
  return out += "]}";
}

}  // namespace sluice

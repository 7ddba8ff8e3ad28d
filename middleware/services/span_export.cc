// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/span_export.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace sluice {
namespace {

using google::protobuf::ListValue;
using google::protobuf::Struct;

std::string Json(const Struct& value) {
  std::string json;
  // Numbers, texts, lists and objects are always printed, unless a text is not UTF-8.
  const auto status = google::protobuf::util::MessageToJsonString(value, &json);
  return status.ok() ? json : "{}";
}

void Set(Struct* object, const char* key, std::string_view text) {
  (*object->mutable_fields())[key].set_string_value(std::string(text));
}
void SetNumber(Struct* object, const char* key, double number) {
  (*object->mutable_fields())[key].set_number_value(number);
}
Struct* SetObject(Struct* object, const char* key) {
  return (*object->mutable_fields())[key].mutable_struct_value();
}
ListValue* SetList(Struct* object, const char* key) {
  return (*object->mutable_fields())[key].mutable_list_value();
}
Struct* Append(ListValue* list) { return list->add_values()->mutable_struct_value(); }

void AddAttribute(ListValue* attributes, const char* key, std::string_view text) {
  Struct* attribute = Append(attributes);
  Set(attribute, "key", key);
  Set(SetObject(attribute, "value"), "stringValue", text);
}

std::string TraceId(const Span& span) {
  return absl::StrFormat("%016x%016x", span.trace_id[0], span.trace_id[1]);
}
std::string SpanId(uint64_t id) { return absl::StrFormat("%016x", id); }

// Messages of errors may have bytes of a peer.
std::string Printable(std::string_view text) {
  std::string printable(text);
  for (char& c : printable) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  return printable;
}

void FillOtlp(const Span& span, Struct* out) {
  Set(out, "traceId", TraceId(span));
  Set(out, "spanId", SpanId(span.span_id));
  if (span.parent_id != 0) Set(out, "parentSpanId", SpanId(span.parent_id));
  Set(out, "name", span.name);
  SetNumber(out, "kind", static_cast<int>(span.kind));
  // Texts, since a number of JSON has 53 bits.
  Set(out, "startTimeUnixNano", absl::StrCat(span.start_unix_ns));
  Set(out, "endTimeUnixNano", absl::StrCat(span.end_unix_ns));
  if (span.kind == Span::Kind::kInternal) return;
  ListValue* attributes = SetList(out, "attributes");
  AddAttribute(attributes, "rpc.system", "sluice");
  const std::vector<std::string> name = absl::StrSplit(span.name, absl::MaxSplits('/', 1));
  AddAttribute(attributes, "rpc.service", name.front());
  if (name.size() == 2) AddAttribute(attributes, "rpc.method", name.back());
  AddAttribute(attributes, "network.peer.address", Printable(span.peer));
  AddAttribute(attributes, "rpc.sluice.status", absl::StatusCodeToString(span.status.code()));
  if (span.status.ok()) return;
  constexpr int kStatusError = 2;
  Struct* status = SetObject(out, "status");
  SetNumber(status, "code", kStatusError);
  Set(status, "message", Printable(std::string(span.status.message())));
}

// Rows of a picture: a span stands in the row of its parent of the same process, calls that overlap in different rows.
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

// Of the day of the first span. A number of JSON has 53 bits: microseconds since 1970 would leave no digits behind the point.
int64_t MidnightNs(std::span<const Span> spans) {
  constexpr int64_t kDayNs = 86'400'000'000'000;
  int64_t first_ns = spans.empty() ? 0 : spans.front().start_unix_ns;
  for (const Span& span : spans) first_ns = std::min(first_ns, span.start_unix_ns);
  return first_ns / kDayNs * kDayNs;
}

}  // namespace

std::string SpansAsOtlp(std::string_view service, std::span<const Span> spans) {
  Struct data;
  Struct* resource_spans = Append(SetList(&data, "resourceSpans"));
  AddAttribute(SetList(SetObject(resource_spans, "resource"), "attributes"), "service.name",
               Printable(service));
  Struct* scope_spans = Append(SetList(resource_spans, "scopeSpans"));
  Set(SetObject(scope_spans, "scope"), "name", "sluice");
  ListValue* list = SetList(scope_spans, "spans");
  for (const Span& span : spans) FillOtlp(span, Append(list));
  return Json(data);
}

std::string SpansAsChromeTrace(std::string_view service, uint32_t process_id,
                               std::span<const Span> spans) {
  const Rows rows(spans);
  const int64_t origin_ns = MidnightNs(spans);
  Struct file;
  Set(&file, "displayTimeUnit", "ns");
  Set(SetObject(&file, "otherData"), "origin_unix_ns", absl::StrCat(origin_ns));
  ListValue* events = SetList(&file, "traceEvents");
  Struct* process = Append(events);
  Set(process, "ph", "M");
  Set(process, "name", "process_name");
  SetNumber(process, "pid", process_id);
  Set(SetObject(process, "args"), "name", Printable(service));
  const auto begin = [&](const Span& span, const char* phase, std::string_view name) {
    Struct* event = Append(events);
    Set(event, "ph", phase);
    Set(event, "name", name);
    Set(event, "cat", "sluice");
    SetNumber(event, "pid", process_id);
    SetNumber(event, "tid", static_cast<double>(rows.Of(span) + 1));
    SetNumber(event, "ts", static_cast<double>(span.start_unix_ns - origin_ns) / 1e3);
    return event;
  };
  for (const Span& span : spans) {
    Struct* event = begin(span, "X", span.name);
    SetNumber(event, "dur", static_cast<double>(span.end_unix_ns - span.start_unix_ns) / 1e3);
    if (span.kind == Span::Kind::kInternal) continue;
    Struct* arguments = SetObject(event, "args");
    Set(arguments, "trace", TraceId(span));
    Set(arguments, "peer", Printable(span.peer));
    Set(arguments, "status",
        Printable(span.status.ToString(absl::StatusToStringMode::kWithNoExtraData)));
    const bool client = span.kind == Span::Kind::kClient;
    if (!client && span.parent_id == 0) continue;
    Struct* arrow = begin(span, client ? "s" : "f", "call");
    Set(arrow, "id", SpanId(client ? span.span_id : span.parent_id));
    if (!client) Set(arrow, "bp", "e");
  }
  return Json(file);
}

}  // namespace sluice

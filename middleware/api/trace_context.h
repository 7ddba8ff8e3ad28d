// SPDX-License-Identifier: Apache-2.0
//
// TraceContext: which distributed trace a call is part of, as W3C Trace Context has it: the value of "traceparent". It goes
// with requests as metadata of that name; CallContext and ServerContext pass it on (docs/decisions/0036). Sluice records no
// spans: an exporter is the program's.
//
// Thread-safety Values.
#ifndef SLUICE_MIDDLEWARE_API_TRACE_CONTEXT_H_
#define SLUICE_MIDDLEWARE_API_TRACE_CONTEXT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr char kTraceParent[] = "traceparent";  // keys of metadata
inline constexpr char kTraceState[] = "tracestate";
inline constexpr size_t kMaxTraceStateBytes = 512;

struct TraceContext {
  std::array<uint64_t, 2> trace_id{};  // as two numbers, the first digits first; not both 0
  uint64_t span_id = 0;                // of who calls; not 0
  uint8_t flags = 0;

  bool sampled() const { return flags & 1; }
  // The same trace, one hop further.
  TraceContext Child(uint64_t span) const {
    TraceContext child = *this;
    child.span_id = span == 0 ? 1 : span;
    return child;
  }
  // "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".
  std::string ToString() const;
  // Empty: it is none, and counts as if it had not been sent. Of versions later than 00 what is known of is read.
  static std::optional<TraceContext> Parse(std::string_view traceparent);

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_TRACE_CONTEXT_H_

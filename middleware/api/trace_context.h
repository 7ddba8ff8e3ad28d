// SPDX-License-Identifier: Apache-2.0
//
// TraceContext: the distributed trace of a call, as in W3C Trace Context: the value of
// "traceparent".
//
// Transport     Requests carry it as metadata of that name. CallContext and ServerContext propagate
//               it (docs/decisions/0036). services/span_recorder.h records spans.
// Threads       A value.
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
  std::array<uint64_t, 2> trace_id{};  // first digits in the first number; not both 0
  uint64_t span_id = 0;                // of the caller; not 0
  uint8_t flags = 0;

  bool sampled() const { return flags & 1; }
  // Returns the context of the next hop: the same trace, with span id `span`; 0 counts as 1.
  TraceContext Child(uint64_t span) const {
    TraceContext child = *this;
    child.span_id = span == 0 ? 1 : span;
    return child;
  }
  // "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".
  std::string ToString() const;
  // Parses a value of "traceparent". nullopt: it is invalid; treat it as missing. Of versions later
  // than 00 only the known fields are read.
  static std::optional<TraceContext> Parse(std::string_view traceparent);

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_TRACE_CONTEXT_H_

// SPDX-License-Identifier: Apache-2.0
//
// The value of "traceparent", as any caller may send it.
#include <string>
#include <string_view>

#include "middleware/api/trace_context.h"
#include "tests/transport/peer/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using sluice::TraceContext;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto context = TraceContext::Parse(text);
  if (!context.has_value()) return 0;
  ++sluice::peer::accepted;
  using sluice::peer::Require;
  Require((context->trace_id[0] | context->trace_id[1]) != 0 && context->span_id != 0,
          "a trace and a span have numbers");
  const std::string written = context->ToString();
  Require(TraceContext::Parse(written) == *context, "what is written is read as the same");
  Require(text.substr(0, 2) != "00" || text == written,
          "of version 00 there is one way to write it");
  Require(text.substr(2, 51) == std::string_view(written).substr(2, 51),
          "of a later version the numbers are passed on");
  return 0;
}

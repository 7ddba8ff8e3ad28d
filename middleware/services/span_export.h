// SPDX-License-Identifier: Apache-2.0
//
// SpansAsOtlp(), SpansAsChromeTrace(): recorded spans as JSON for other programs.
//
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_SERVICES_SPAN_EXPORT_H_
#define SLUICE_MIDDLEWARE_SERVICES_SPAN_EXPORT_H_

#include <span>
#include <string>
#include <string_view>

#include "middleware/services/span_recorder.h"

namespace sluice {

// OTLP/JSON (opentelemetry.proto.trace.v1.TracesData) on one line without a line break: the body of a POST to a collector's /v1/traces,
// or a line of a file that Jaeger and the collector's file receiver read. `service`: value of service.name.
std::string SpansAsOtlp(std::string_view service, std::span<const Span> spans);

// A file in the Trace Event Format, for ui.perfetto.dev and chrome://tracing. Each call has a row; calls that overlap have different
// rows. An arrow leads from a channel's call to the server's. `process_id` distinguishes processes if files are joined. Times count from
// midnight UTC of the day of the first span.
std::string SpansAsChromeTrace(std::string_view service, uint32_t process_id,
                               std::span<const Span> spans);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_SPAN_EXPORT_H_

// SPDX-License-Identifier: Apache-2.0
//
// HttpPages: a status page for people, and metrics for Prometheus, on one HTTP port.
//
//   auto pages = sluice::HttpPages::Start("9464");   // http://127.0.0.1:9464/
//   if (!pages.ok()) return pages.status();
//   (*pages)->Add(server.get(), "orders", server_options);
//
// Paths         /             the page; it polls /status.json
//               /status.json  proto/status_page.proto as JSON
//               /metrics      as PrometheusMetrics
//               /config       the options in effect as JSON, without secrets
//               /healthz      200 "ok", or 503 if a polling thread does not answer within `patience`
// Access        Off unless the program starts it. Without a host in the address it listens on 127.0.0.1
//               only, and refuses requests whose Host header is neither an IP address nor localhost,
//               so that no web page of another site can read it through a browser. Nothing can be changed
//               by a request. Without PagesOptions::readers each client that connects sees
//               everything, except what belongs to tenants. docs/decisions/0071.
// Ownership     The user's. Servers outlive it, or are removed before they are destroyed.
// Threads       Any. The HTTP server has its own threads. For each path and kind of reader it reads the
//               state of a server at most once per `refresh`.
// Signals       The HTTP server makes the process ignore SIGPIPE.
#ifndef SLUICE_MIDDLEWARE_SERVICES_HTTP_PAGES_H_
#define SLUICE_MIDDLEWARE_SERVICES_HTTP_PAGES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "middleware/api/log.h"
#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/services/counter_table.h"
#include "middleware/services/page_readers.h"

namespace sluice {

struct PagesOptions {
  // Maximum number of connections that are served at the same time, one thread each. Further
  // connections wait until a thread is free. Range: 1 to 64.
  int workers = 4;
  // Time after which the HTTP server closes a connection that has not sent a complete request, or
  // does not read the reply. Range: 10 ms to 1 h, whole milliseconds.
  absl::Duration request_timeout = absl::Seconds(2);
  // Maximum size of a request's line and headers in bytes. Larger requests are refused with 413, and
  // so are requests with a body. Range: 1,024 to 65,536.
  uint32_t max_request_bytes = 8192;
  // Time for which a reply is reused: requests of the same path and kind of reader within this time get
  // the same data. Range: 10 ms to 1 h.
  absl::Duration refresh = absl::Milliseconds(250);
  // Maximum time to wait for the polling thread of a server whose handler blocks. Range: 1 ms to 10 s.
  absl::Duration patience = absl::Milliseconds(200);
  // If not empty, /status.json, /metrics and /config require the header "Authorization: Bearer TOKEN"
  // with the token of a reader; the page asks for it. Default: none.
  std::vector<PageReader> readers;
  // Sink for exceptions of counter sources whose counters /metrics then omits. Null: standard error.
  std::shared_ptr<LogSink> log;

  absl::Status Validate() const;
};

class HttpPages {
 public:
  // `address`: "9464" or "10.0.0.5:9464"; port 0: any free port. Errors: INVALID_ARGUMENT (not an
  // address, an option out of range, or an unusable token), UNAVAILABLE (the address is in use, or
  // not an address of this host), those of PageReaders::Read().
  static absl::StatusOr<std::unique_ptr<HttpPages>> Start(const std::string& address,
                                                          const PagesOptions& options = {});
  // Waits for requests in progress, at most for `request_timeout`.
  ~HttpPages();
  HttpPages(const HttpPages&) = delete;
  HttpPages& operator=(const HttpPages&) = delete;

  // Adds a server, with the options that it was created with, a channel, or further counters (as
  // PrometheusMetrics::Add()). `name`: shown on the page, and value of the label; replaces an entry of
  // the same kind and name.
  void Add(const Server* server, const std::string& name, const ServerOptions& options);
  void Add(std::shared_ptr<Channel> channel, const std::string& name);
  void Add(CounterSource source, const std::string& name);
  void Remove(const std::string& name);

  uint16_t port() const;
  // Returns how many replies were made from new state since the start. Other requests got a stored reply.
  uint64_t looks() const;

 private:
  class Impl;
  explicit HttpPages(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_HTTP_PAGES_H_

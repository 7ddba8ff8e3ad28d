// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/http_pages.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <prometheus/text_serializer.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "middleware/api/fork_count.h"
#include "middleware/services/http_address.h"
#include "middleware/services/prometheus_metrics.h"
#include "middleware/services/status_page_html.h"
#include "middleware/services/status_report.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using Rights = PageViewer::Rights;

constexpr int kMaxWorkers = 64;
constexpr uint32_t kLeastRequestBytes = 1024;
constexpr uint32_t kMaxRequestBytes = 65536;
constexpr absl::Duration kLeastTime = absl::Milliseconds(10);
constexpr absl::Duration kMaxTime = absl::Hours(1);

constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kJson[] = "application/json";
constexpr char kText[] = "text/plain; charset=utf-8";
constexpr char kMetrics[] = "text/plain; version=0.0.4; charset=utf-8";

absl::Status OutOfRange(const char* name, const std::string& value, const std::string& range) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("option ", name, " is ", value),
                     {.layer = "pages",
                      .operation = "start",
                      .cause = absl::StrCat("the range is ", range),
                      .remedy = "set a value within the range",
                      .retry_safe = true});
}

absl::Status CheckTime(const char* name, absl::Duration value, absl::Duration low,
                       absl::Duration high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return OutOfRange(name, absl::FormatDuration(value),
                    absl::StrCat(absl::FormatDuration(low), " to ", absl::FormatDuration(high)));
}

// Returns 32 random hexadecimal digits; empty if the system has no random numbers.
std::string Nonce() {
  char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return "";
  return absl::BytesToHexString({bytes, sizeof(bytes)});
}

// Returns true if a Host header is an IP address or localhost. The name of another site is refused, because the other site
// could have changed its address to the address of this host.
bool IsLocalHost(std::string_view host) {
  if (!host.empty() && host[0] == '[') return host.find(']') != std::string_view::npos;
  const std::string name(host.substr(0, host.find(':')));
  in_addr address;
  return absl::EqualsIgnoreCase(name, "localhost") ||
         inet_pton(AF_INET, name.c_str(), &address) == 1;
}

struct Reply {
  int code = 200;
  const char* type = kText;
  std::shared_ptr<const std::string> body;
  std::string headers;  // additional headers
};

Reply Text(int code, const std::string& text, std::string headers = "") {
  return {code, kText, std::make_shared<const std::string>(text + "\n"), std::move(headers)};
}

const char* Phrase(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 421:
      return "Misdirected Request";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

absl::Status PagesOptions::Validate() const {
  if (workers < 1 || workers > kMaxWorkers) {
    return OutOfRange("workers", absl::StrCat(workers), absl::StrCat("1 to ", kMaxWorkers));
  }
  if (max_request_bytes < kLeastRequestBytes || max_request_bytes > kMaxRequestBytes) {
    return OutOfRange("max_request_bytes", absl::StrCat(max_request_bytes),
                      absl::StrCat(kLeastRequestBytes, " to ", kMaxRequestBytes));
  }
  absl::Status status = CheckTime("request_timeout", request_timeout, kLeastTime, kMaxTime);
  status.Update(CheckTime("refresh", refresh, kLeastTime, kMaxTime));
  status.Update(CheckTime("patience", patience, absl::Milliseconds(1), absl::Seconds(10)));
  return status;
}

// Makes each kind of reply at most once per `refresh`, for all clients.
class HttpPages::Impl {
 public:
  explicit Impl(const PagesOptions& options)
      : options_(options),
        report_(options.patience),
        metrics_(std::make_shared<PrometheusMetrics>(options.patience, options.log)) {}
  ~Impl();

  absl::Status Listen(const std::string& address);
  bool InForkedChild() const { return creator_.InForkedChild(); }

  StatusReport& report() { return report_; }
  PrometheusMetrics& metrics() { return *metrics_; }
  uint16_t port() const { return port_; }
  uint64_t looks() const {
    std::lock_guard lock(mutex_);
    return looks_;
  }

 private:
  struct Kept {
    std::mutex mutex;
    std::chrono::steady_clock::time_point made;
    std::shared_ptr<const std::string> body;  // null: none so far
  };

  // Connects to the port of this object, and closes the connection.
  void Connect() const;
  static int OnRequest(mg_connection* connection);
  static int SendReply(mg_connection* connection);
  Reply Answer(const mg_connection* connection, const mg_request_info& request);
  Reply AnswerViewer(std::string_view path, const PageViewer& viewer);
  std::shared_ptr<const std::string> KeptOr(const std::string& key,
                                            const std::function<std::string()>& make);

  const internal::Creator creator_;
  const PagesOptions options_;
  PageReaders readers_;
  StatusReport report_;
  const std::shared_ptr<PrometheusMetrics> metrics_;
  std::string host_;
  bool loopback_ = false;
  uint16_t port_ = 0;
  mg_context* context_ = nullptr;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Kept>>
      kept_;            // mutex_; one for each path and kind of reader
  uint64_t looks_ = 0;  // mutex_
};

HttpPages::Impl::~Impl() {
  if (context_ == nullptr) return;
  // civetweb's listening thread notices the end at the next connection, or after two seconds.
  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;  // mutex
  std::thread waker([&] {
    std::unique_lock lock(mutex);
    do {
      Connect();
    } while (!ended.wait_for(lock, std::chrono::milliseconds(5), [&] { return has_ended; }));
  });
  mg_stop(context_);  // no request is handled after it
  {
    std::lock_guard lock(mutex);
    has_ended = true;
  }
  ended.notify_one();
  waker.join();
}

void HttpPages::Impl::Connect() const {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port_);
  if (inet_pton(AF_INET, host_.c_str(), &address.sin_addr) != 1) return;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // The result does not matter: the socket is closed in any case.
  (void)connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  close(fd);
}

absl::Status HttpPages::Impl::Listen(const std::string& address) {
  absl::Status status = options_.Validate();
  if (status.ok()) status = readers_.Read(options_.readers);
  if (!status.ok()) return status;
  const std::optional<std::string> bound = LoopbackUnlessTold(address);
  if (!bound) {
    return base::Error(absl::StatusCode::kInvalidArgument, "status pages not started",
                       {.layer = "pages",
                        .operation = "start",
                        .cause = absl::StrCat("\"", address, "\" is neither a port nor host:port"),
                        .remedy = "use 9464 (reachable from this host only) or 10.0.0.5:9464",
                        .retry_safe = true});
  }
  host_ = bound->substr(0, bound->rfind(':'));
  loopback_ = absl::StartsWith(*bound, "127.") || absl::StartsWith(*bound, "localhost:") ||
              absl::StartsWith(*bound, "[::1]:");
  const std::string workers = absl::StrCat(options_.workers);
  const std::string timeout = absl::StrCat(absl::ToInt64Milliseconds(options_.request_timeout));
  const std::string max_bytes = absl::StrCat(options_.max_request_bytes);
  const char* settings[] = {"listening_ports",
                            bound->c_str(),  //
                            "num_threads",
                            workers.c_str(),  //
                            "request_timeout_ms",
                            timeout.c_str(),  //
                            "max_request_size",
                            max_bytes.c_str(),  //
                            "enable_keep_alive",
                            "no",  //
                            nullptr};
  mg_callbacks callbacks = {};
  callbacks.begin_request = &OnRequest;
  callbacks.log_message = [](const mg_connection*, const char*) {
    return 1;
  };  // the server library itself logs nothing
  context_ = mg_start(&callbacks, this, settings);
  if (context_ == nullptr) {
    return base::Error(
        absl::StatusCode::kUnavailable, absl::StrCat("status pages not started at ", *bound),
        {.layer = "pages",
         .operation = "start",
         .cause = "most likely the port is in use, or the address is not this host's",
         .remedy = "choose another port; 0 takes a free one"});
  }
  mg_server_port port = {};
  if (mg_get_server_ports(context_, 1, &port) == 1) port_ = static_cast<uint16_t>(port.port);
  return absl::OkStatus();
}

int HttpPages::Impl::OnRequest(mg_connection* connection) {
  // Otherwise the server library would read the body of a refused request to its end, even if it arrives slowly.
  mg_disable_connection_keep_alive(connection);
  try {
    return SendReply(connection);
  } catch (...) {  // no memory; no exception may pass through the C code of the caller
    static constexpr char kNoReply[] =
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    mg_write(connection, kNoReply, sizeof(kNoReply) - 1);
    return 500;
  }
}

int HttpPages::Impl::SendReply(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  Reply reply;
  try {
    reply = static_cast<Impl*>(request->user_data)->Answer(connection, *request);
  } catch (const std::exception& why) {  // of a counter source, or no memory
    reply = Text(500, absl::StrCat("the reply was not made: ", why.what()));
  } catch (...) {
    reply = Text(500, "the reply was not made: a counter source threw an exception");
  }
  std::string head = absl::StrCat(
      "HTTP/1.1 ", reply.code, " ", Phrase(reply.code), "\r\nContent-Type: ", reply.type,
      "\r\nContent-Length: ", reply.body->size(),
      "\r\nConnection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n",
      reply.headers, "\r\n");
  if (std::string_view(request->request_method) != "HEAD") head += *reply.body;
  mg_write(connection, head.data(), head.size());  // fails after request_timeout
  return reply.code;
}

Reply HttpPages::Impl::Answer(const mg_connection* connection, const mg_request_info& request) {
  const auto header = [&](const char* name) {
    const char* value = mg_get_header(connection, name);
    return std::string_view(value == nullptr ? "" : value);
  };
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    return Text(405, "only GET and HEAD", "Allow: GET, HEAD\r\n");
  }
  if (request.content_length > 0 || !header("Transfer-Encoding").empty()) {
    return Text(413, "requests with a body are not accepted");
  }
  if (loopback_ && !IsLocalHost(header("Host"))) {
    return Text(421, "these pages are reachable as localhost or by IP address only");
  }
  const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
  if (path == "/") {
    const std::string nonce = Nonce();
    return {
        200, kHtml,
        std::make_shared<const std::string>(absl::StrReplaceAll(kStatusPage, {{"@NONCE@", nonce}})),
        absl::StrCat(
            "Content-Security-Policy: default-src 'none'; connect-src 'self'; img-src data:; "
            "script-src 'nonce-",
            nonce, "'; style-src 'nonce-", nonce,
            "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n")};
  }
  if (path == "/healthz") {
    const auto body = KeptOr("/healthz", [this]() -> std::string {
      return report_.AllAnswer() ? "ok\n" : "a server's polling thread does not answer\n";
    });
    return {*body == "ok\n" ? 200 : 503, kText, body, ""};
  }
  if (path != "/status.json" && path != "/metrics" && path != "/config") {
    return Text(404, "paths: / /status.json /metrics /config /healthz");
  }
  return AnswerViewer(path, readers_.Identify(header("Authorization")));
}

Reply HttpPages::Impl::AnswerViewer(std::string_view path, const PageViewer& viewer) {
  if (viewer.rights == Rights::kNone) {
    return Text(401, "a token is required: Authorization: Bearer TOKEN",
                "WWW-Authenticate: Bearer realm=\"sluice\"\r\n");
  }
  if (path == "/status.json") {
    return {200, kJson,
            KeptOr(absl::StrCat("/status.json of ", viewer.tenant),
                   [&] { return report_.StatusJson(viewer); }),
            ""};
  }
  if (viewer.rights == Rights::kTenant) return Text(403, "not shown to readers of a tenant");
  if (path == "/metrics") {
    return {200, kMetrics,
            KeptOr("/metrics",
                   [&] { return prometheus::TextSerializer().Serialize(metrics_->Collect()); }),
            ""};
  }
  return {200, kJson, KeptOr("/config", [&] { return report_.ConfigJson(); }), ""};
}

std::shared_ptr<const std::string> HttpPages::Impl::KeptOr(
    const std::string& key, const std::function<std::string()>& make) {
  std::shared_ptr<Kept> kept;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Kept>& place = kept_[key];
    if (place == nullptr) place = std::make_shared<Kept>();
    kept = place;
  }
  std::lock_guard lock(kept->mutex);  // concurrent requests wait for the same reply
  const auto now = std::chrono::steady_clock::now();
  if (kept->body == nullptr || now - kept->made >= absl::ToChronoNanoseconds(options_.refresh)) {
    kept->body = std::make_shared<const std::string>(make());
    kept->made = std::chrono::steady_clock::now();
    std::lock_guard counts(mutex_);
    ++looks_;
  }
  return kept->body;
}

absl::StatusOr<std::unique_ptr<HttpPages>> HttpPages::Start(const std::string& address,
                                                            const PagesOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (absl::Status status = impl->Listen(address); !status.ok()) return status;
  return std::unique_ptr<HttpPages>(new HttpPages(std::move(impl)));
}

HttpPages::HttpPages(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpPages::~HttpPages() {
  if (impl_->InForkedChild()) (void)impl_.release();
}

void HttpPages::Add(const Server* server, const std::string& name, const ServerOptions& options) {
  if (impl_->InForkedChild()) return;
  impl_->report().Add(server, name, options);
  impl_->metrics().Add(server, name);
}

void HttpPages::Add(std::shared_ptr<Channel> channel, const std::string& name) {
  if (impl_->InForkedChild()) return;
  impl_->report().Add(channel, name);
  impl_->metrics().Add(std::move(channel), name);
}

void HttpPages::Add(CounterSource source, const std::string& name) {
  if (impl_->InForkedChild()) return;
  impl_->report().Add(source, name);
  impl_->metrics().Add(std::move(source), name);
}

void HttpPages::Remove(const std::string& name) {
  if (impl_->InForkedChild()) return;
  impl_->report().Remove(name);
  impl_->metrics().Remove(name);
}

uint16_t HttpPages::port() const { return impl_->port(); }
uint64_t HttpPages::looks() const { return impl_->InForkedChild() ? 0 : impl_->looks(); }

}  // namespace sluice

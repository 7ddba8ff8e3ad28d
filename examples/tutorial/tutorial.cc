// SPDX-License-Identifier: Apache-2.0
//
// The code of docs/tutorial.md: a server and a client of it in one program. It prints what the page says.
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "examples/tutorial/quotes.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"
#include "middleware/api/signal.h"

namespace sluice::examples::tutorial {
namespace {

class QuotesService final : public QuotesServiceBase {
 public:
  absl::Status Get(ServerContext&, const GetRequest& request, Quote* reply) override {
    auto at = cents_.find(request.symbol());
    if (at == cents_.end()) return absl::NotFoundError("nobody trades " + request.symbol());
    reply->set_symbol(at->first);
    reply->set_cents(at->second);
    return absl::OkStatus();
  }

  Task<absl::Status> Watch(ServerContext& context, const WatchRequest& request,
                           ServerWriter<Quote> writer) override {
    Quote quote;
    quote.set_symbol(request.symbol());
    for (uint32_t i = 0; i < request.quotes(); ++i) {
      quote.set_cents(cents_[request.symbol()] + i);
      if (!co_await writer.Write(quote)) co_return absl::CancelledError("nobody watches");
    }
    if (request.quotes() == 0) co_await next_.Wait(context.stop_token());
    co_return absl::OkStatus();
  }

 private:
  std::map<std::string, int64_t> cents_{{"ACME", 1042}, {"INIT", 7}};
  Signal next_;  // nobody tells of another quote in this program
};

void Print(const char* what, const absl::Status& status) {
  std::printf("%s: %s\n", what,
              status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
}

absl::Status Unary(const QuotesClient& client) {
  CallContext context(absl::Seconds(10));
  GetRequest request;
  request.set_symbol("ACME");
  absl::StatusOr<Quote> quote = client.Get(context, request);
  if (!quote.ok()) return quote.status();
  std::printf("%s is at %lld\n", quote->symbol().c_str(), static_cast<long long>(quote->cents()));

  request.set_symbol("NOSUCH");
  Print("an error", client.Get(context, request).status());
  return absl::OkStatus();
}

absl::Status Streaming(const QuotesClient& client) {
  CallContext context(absl::Seconds(10));
  WatchRequest request;
  request.set_symbol("INIT");
  request.set_quotes(3);
  auto quotes = client.Watch(context, request);
  for (Quote quote; quotes.Read(&quote);) {
    std::printf("%s is at %lld\n", quote.symbol().c_str(), static_cast<long long>(quote.cents()));
  }
  return quotes.Finish();
}

void Deadline(const QuotesClient& client) {
  CallContext context(absl::Milliseconds(20));
  auto quotes = client.Watch(context, WatchRequest());  // which never comes to an end
  Quote quote;
  while (quotes.Read(&quote)) {
  }
  Print("a deadline", quotes.Finish());
}

void Cancel(const QuotesClient& client) {
  std::stop_source stop;
  CallContext context = CallContext::NoDeadline();
  context.set_stop_token(stop.get_token());
  auto quotes = client.Watch(context, WatchRequest());
  std::thread another([&] { stop.request_stop(); });
  Quote quote;
  while (quotes.Read(&quote)) {
  }
  Print("a stop", quotes.Finish());
  another.join();
}

absl::Status Run(const std::string& device) {
  ServerOptions server_options;
  server_options.device = device;
  auto server = Server::Create(server_options);
  if (!server.ok()) return server.status();
  QuotesService quotes;
  if (absl::Status status = (*server)->Register(&quotes); !status.ok()) return status;
  auto port = (*server)->Listen("127.0.0.1:0");
  if (!port.ok()) return port.status();

  ChannelOptions options;
  options.device = device;
  auto channel = Channel::Connect("127.0.0.1:" + std::to_string(*port), options);
  if (!channel.ok()) return channel.status();
  const QuotesClient client(*channel);
  if (absl::Status status = Unary(client); !status.ok()) return status;
  if (absl::Status status = Streaming(client); !status.ok()) return status;
  Deadline(client);
  Cancel(client);

  absl::Status drained = (*server)->Drain(absl::Seconds(5));
  if (!drained.ok()) return drained;
  CallContext context(absl::Seconds(10));
  Print("afterwards", client.Get(context, GetRequest()).status());
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice::examples::tutorial

int main(int argc, char** argv) {
  const absl::Status status = sluice::examples::tutorial::Run(argc > 1 ? argv[1] : "auto");
  if (status.ok()) return 0;
  sluice::examples::tutorial::Print("tutorial", status);
  return 1;
}

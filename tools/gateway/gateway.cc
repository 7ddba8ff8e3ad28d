// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/gateway.h"

#include <grpc/grpc.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/address.h"
#include "tools/gateway/clamped_time.h"
#include "tools/gateway/gateway_call.h"
#include "tools/gateway/method_table.h"
#include "tools/gateway/open_calls.h"
#include "tools/gateway/reflection_bridge.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

absl::Status Wrong(const std::string& what, const std::string& remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument, what,
                     {.layer = "gateway", .operation = "start", .remedy = remedy});
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(
    const Gateway::Options& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return Wrong("TLS needs a certificate and its key", "give both, or none");
  }
  if (options.tls_certificate.empty() && !options.tls_client_authority.empty()) {
    return Wrong("certificates of clients need TLS", "give --tls_certificate and --tls_key, too");
  }
  if (options.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions tls(
      options.tls_client_authority.empty()
          ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  tls.pem_root_certs = options.tls_client_authority;
  tls.pem_key_cert_pairs.push_back({options.tls_key, options.tls_certificate});
  return grpc::SslServerCredentials(tls);
}

}  // namespace

class Gateway::Service final : public grpc::CallbackGenericService {
 public:
  Service(std::shared_ptr<Channel> channel, const Options& options)
      : channel_(std::move(channel)),
        descriptors_(options.descriptors),
        calls_(options.max_calls),
        methods_(channel_),
        shared_{channel_.get(), &methods_, &calls_, options.max_message_bytes} {
    for (const auto& file : descriptors_.file()) methods_.Add(file);
  }

  // A client whose host or network is gone sends no reset: only a ping that it does not answer tells.
  static void FindDeadClients(absl::Duration keepalive, grpc::ServerBuilder* builder) {
    const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(keepalive));
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds);
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, milliseconds);
    // Otherwise gRPC stops after two pings without data.
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }

  // gRPC compares the length of a message after it has received and inflated it.
  static void LimitMemory(uint32_t max_message_bytes, grpc::ServerBuilder* builder) {
    // gRPC reports a message that it cannot inflate like the end of the client's messages, too.
    builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
    builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
    constexpr uint64_t kLeastBytes = 256u << 20;
    constexpr uint64_t kMessages = 4;
    grpc::ResourceQuota quota("gateway");
    quota.Resize(std::max(kLeastBytes, kMessages * max_message_bytes));
    builder->SetResourceQuota(quota);
  }

  absl::StatusOr<uint16_t> Listen(const Options& options) {
    auto credentials = CredentialsOf(options);
    if (!credentials.ok()) return credentials.status();
    int port = 0;
    grpc::ServerBuilder builder;
    // Otherwise two gateways share a port, and each gets half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                               static_cast<int>(options.max_calls));
    builder.AddListeningPort(options.listen, *credentials, &port);
    FindDeadClients(options.client_keepalive, &builder);
    LimitMemory(options.max_message_bytes, &builder);
    // GatewayCall has the limit. gRPC reports a message over its own limit like the end of the client's messages, and after it
    // was received as a whole.
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port <= 0) {
      return base::Error(absl::StatusCode::kUnavailable,
                         absl::StrCat("gRPC does not listen at ", options.listen),
                         {.layer = "gateway",
                          .operation = "start",
                          .cause = "the address is not one of this host, its port is in use, or "
                                   "certificate and key are not usable: the lines above say more",
                          .remedy = "choose another --listen, or check the files of TLS"});
    }
    return static_cast<uint16_t>(port);
  }

  void Drain(absl::Duration timeout) {
    if (server_ == nullptr) return;
    calls_.Drain();
    const std::chrono::microseconds time = ClampedTime(timeout);
    // gRPC would end the calls with CANCELLED, after which clients do not try another server.
    std::mutex mutex;
    std::condition_variable changed;
    bool shut = false;
    std::thread ending([&, until = std::chrono::steady_clock::now() + time] {
      {
        std::unique_lock lock(mutex);
        if (changed.wait_until(lock, until, [&shut] { return shut; })) return;
      }
      calls_.EndAll();
    });
    constexpr std::chrono::seconds kGrace(5);
    server_->Shutdown(std::chrono::system_clock::now() + time + kGrace);
    server_->Wait();
    {
      const std::lock_guard lock(mutex);
      shut = true;
      changed.notify_one();
    }
    ending.join();
    calls_.WaitUntilNone();
    server_.reset();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    if (ReflectionBridge::Serves(context->method())) {
      return new ReflectionBridge(channel_, &descriptors_, &calls_);
    }
    return new GatewayCall(context, &shared_);
  }

 private:
  const std::shared_ptr<Channel> channel_;
  const google::protobuf::FileDescriptorSet descriptors_;
  OpenCalls calls_;
  MethodTable methods_;
  const GatewayCall::Shared shared_;
  std::unique_ptr<grpc::Server> server_;
};

Gateway::Gateway() = default;

Gateway::~Gateway() { Drain(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(std::shared_ptr<Channel> channel,
                                                        const Options& options) {
  constexpr uint32_t kMaxCalls = 1'000'000, kMinMessage = 1024, kMaxMessage = 1u << 30;
  if (options.max_calls < 1 || options.max_calls > kMaxCalls) {
    return Wrong(absl::StrCat("max_calls is ", options.max_calls),
                 absl::StrCat("choose 1 to ", kMaxCalls));
  }
  if (options.max_message_bytes < kMinMessage || options.max_message_bytes > kMaxMessage) {
    return Wrong(absl::StrCat("max_message_bytes is ", options.max_message_bytes),
                 absl::StrCat("choose ", kMinMessage, " to ", kMaxMessage));
  }
  if (options.client_keepalive < absl::Milliseconds(1) ||
      options.client_keepalive > absl::Hours(1)) {
    return Wrong(
        absl::StrCat("client_keepalive is ", absl::FormatDuration(options.client_keepalive)),
        "choose 1 ms to 1 h");
  }
  // gRPC would take its default port.
  if (auto address = ParseAddress(options.listen, /*allow_port_0=*/true); !address.ok()) {
    return address.status();
  }
  std::unique_ptr<Gateway> gateway(new Gateway());
  gateway->service_ = std::make_unique<Service>(std::move(channel), options);
  auto port = gateway->service_->Listen(options);
  if (!port.ok()) return port.status();
  gateway->port_ = *port;
  return gateway;
}

void Gateway::Drain(absl::Duration timeout) {
  if (service_ != nullptr) service_->Drain(timeout);
}

}  // namespace sluice::gateway

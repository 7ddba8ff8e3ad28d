// SPDX-License-Identifier: Apache-2.0
//
// The program between a Sluice server and gRPC clients, each a process of its own, on a softdc of this test's own.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/programs.h"
#include "tests/tools/gateway/route_guide.grpc.pb.h"

namespace sluice::gateway {
namespace gateway_processes_test {

using ::testing::HasSubstr;
using testing_support::kProgramTimeout;
using testing_support::OutputOf;
using testing_support::ServerProgram;
using testing_support::StartProgram;
using tests::route::Feature;
using tests::route::Point;
using tests::route::RouteGuide;
using tests::route::RouteNote;

constexpr char kProgram[] = "tools/gateway/sluice_gateway";
constexpr char kServer[] = "tests/tools/gateway/route_server";

std::string Said(const std::string& options, int code) {
  return OutputOf(
      StartProgram({"/bin/sh", "-c", std::string(kProgram) + " " + options + " 2>&1"}).get(), code);
}

class GatewayProcessesTest : public ::testing::Test {
 protected:
  static std::unique_ptr<RouteGuide::Stub> StubOf(const ServerProgram& gateway) {
    return RouteGuide::NewStub(
        grpc::CreateChannel(gateway.address, grpc::InsecureChannelCredentials()));
  }
  static grpc::Status Get(RouteGuide::Stub* stub, const std::string& what = "") {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         absl::ToChronoMicroseconds(kProgramTimeout));
    if (!what.empty()) context.AddMetadata("do", what);
    Feature feature;
    return stub->GetFeature(&context, Point(), &feature);
  }
};

TEST_F(GatewayProcessesTest, AServerThatIsKilledEndsItsCallsAndIsReachedAgain) {
  ServerProgram server({kServer});
  const ServerProgram gateway({kProgram, "--server=" + server.address});
  const auto stub = StubOf(gateway);
  ASSERT_TRUE(Get(stub.get()).ok());

  grpc::ClientContext chatting;
  const auto chat = stub->RouteChat(&chatting);
  RouteNote note;
  ASSERT_TRUE(chat->Write(note) && chat->Read(&note));
  server.process->Signal(SIGKILL);
  EXPECT_FALSE(chat->Read(&note));
  const grpc::Status ended = chat->Finish();
  EXPECT_EQ(ended.error_code(), grpc::StatusCode::UNAVAILABLE) << ended.error_message();
  const grpc::Status without = Get(stub.get());
  EXPECT_EQ(without.error_code(), grpc::StatusCode::UNAVAILABLE) << without.error_message();
  EXPECT_EQ(server.process->Wait(kProgramTimeout).value_or(-1), 128 + SIGKILL);

  const auto again = StartProgram({kServer, "--listen=" + server.address, "--device=softdc0"});
  ASSERT_TRUE(tools::ListeningAddress(*again, kProgramTimeout).ok());
  grpc::Status status;
  do {
    status = Get(stub.get());
  } while (status.error_code() == grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(GatewayProcessesTest, AGatewayStartsBeforeItsServer) {
  std::string address;
  {
    const ServerProgram first({kServer});
    address = first.address;
  }
  const ServerProgram gateway({kProgram, "--server=" + address});
  const auto stub = StubOf(gateway);
  const grpc::Status without = Get(stub.get());
  EXPECT_EQ(without.error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto server = StartProgram({kServer, "--listen=" + address, "--device=softdc0"});
  ASSERT_TRUE(tools::ListeningAddress(*server, kProgramTimeout).ok());
  grpc::Status status;
  do {
    status = Get(stub.get());
  } while (status.error_code() == grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// The server says how its handlers ended: half a route is not a route, whatever its client was doing when it died.
TEST_F(GatewayProcessesTest, AClientThatIsKilledStopsItsHandler) {
  const ServerProgram server({kServer, "--report"});
  const ServerProgram gateway({kProgram, "--server=" + server.address});
  for (int round = 0; round < 5; ++round) {
    const auto client = StartProgram({"tests/tools/gateway/route_client", gateway.address});
    ASSERT_EQ(client->ReadLine(kProgramTimeout).value_or(""), "sent");
    // gRPC's write has ended before the message is on its way.
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(server.process->ReadLine(kProgramTimeout).value_or(""), "read");
    }
    client->Signal(SIGKILL);
    EXPECT_EQ(server.process->ReadLine(kProgramTimeout).value_or(""), "stopped");
  }
  EXPECT_TRUE(Get(StubOf(gateway).get()).ok());
}

TEST_F(GatewayProcessesTest, TheProgramEndsAtSigtermWhenItsCallsHaveEnded) {
  const ServerProgram server({kServer});
  const ServerProgram gateway({kProgram, "--server=" + server.address, "--drain=1h"});
  const auto stub = StubOf(gateway);
  grpc::ClientContext chatting;
  const auto chat = stub->RouteChat(&chatting);
  RouteNote note;
  ASSERT_TRUE(chat->Write(note) && chat->Read(&note));
  gateway.process->Signal(SIGTERM);
  ASSERT_TRUE(chat->Write(note) && chat->Read(&note));
  chat->WritesDone();
  EXPECT_TRUE(chat->Finish().ok());
  EXPECT_EQ(gateway.process->Wait(kProgramTimeout).value_or(-1), 0);
}

TEST_F(GatewayProcessesTest, WithTlsOnlyClientsWithACertificateAreServed) {
  const std::string folder = ::testing::TempDir();
  const std::string key = folder + "/key.pem", certificate = folder + "/certificate.pem";
  OutputOf(StartProgram({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                         "-out", certificate})
               .get());
  const ServerProgram server({kServer});
  // It has signed itself, and so is the authority as well.
  const ServerProgram gateway({kProgram, "--server=" + server.address, "--tls_key=" + key,
                               "--tls_certificate=" + certificate,
                               "--tls_client_authority=" + certificate});
  const auto content = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto get = [&](const grpc::SslCredentialsOptions& options) {
    const auto stub =
        RouteGuide::NewStub(grpc::CreateChannel(gateway.address, grpc::SslCredentials(options)));
    return Get(stub.get());
  };
  const grpc::Status served = get({content(certificate), content(key), content(certificate)});
  EXPECT_TRUE(served.ok()) << served.error_message();
  EXPECT_EQ(get({content(certificate), "", ""}).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Get(StubOf(gateway).get()).error_code(), grpc::StatusCode::UNAVAILABLE);
}

// There and back: the second gateway asks the first one, as gRPC's reflection, for the services.
TEST_F(GatewayProcessesTest, AReverseGatewayServesWhatAGrpcServerDescribes) {
  const ServerProgram server({kServer});
  const ServerProgram gateway({kProgram, "--server=" + server.address});
  const ServerProgram reverse({kProgram, "--reverse", "--server=" + gateway.address});
  const auto call = [&reverse](const std::string& what, int code = 0) {
    return OutputOf(StartProgram({"/bin/sh", "-c",
                                  "tools/sluice_call --device=softdc0 --server=" + reverse.address +
                                      " " + what + " 2>&1"})
                        .get(),
                    code);
  };
  EXPECT_EQ(call("list"),
            "grpc.health.v1.Health\nsluice.health.v1.Health\nsluice.tests.route.RouteGuide\n");
  EXPECT_EQ(call("sluice.health.v1.Health/Check"), "{\"status\":\"SERVING\"}\n");
  EXPECT_THAT(call("--json='{\"latitude\":7}' sluice.tests.route.RouteGuide/GetFeature"),
              HasSubstr("\"name\":\"feature 7\""));
  EXPECT_THAT(call("--json='{\"lo\":{\"latitude\":1},\"hi\":{\"latitude\":3}}' "
                   "sluice.tests.route.RouteGuide/ListFeatures"),
              HasSubstr("feature 3"));
  reverse.process->Signal(SIGTERM);
  EXPECT_EQ(reverse.process->Wait(kProgramTimeout).value_or(-1), 0);
}

TEST_F(GatewayProcessesTest, WrongFlagsAreSaidClearly) {
  const std::string help = Said("--help", 0);
  for (const char* flag : {"--listen", "--server", "--max_calls", "--max_message", "--descriptors",
                           "--tls_certificate", "--drain", "--secret_file"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
  EXPECT_THAT(Said("--serve=x", 2), HasSubstr("did you mean --server?"));
  EXPECT_THAT(Said("--max_calls=0", 2), HasSubstr("1 to 1000000"));
  EXPECT_THAT(Said("--max_message=10", 2), HasSubstr("1024 to"));
  EXPECT_THAT(Said("--server=nowhere", 1), HasSubstr("nowhere"));
  EXPECT_THAT(Said("--descriptors=/no/such/file", 2), HasSubstr("cannot be read"));
  // Not a gateway without TLS.
  for (const char* flag : {"--tls_certificate=", "--tls_key=", "--tls_client_authority="}) {
    EXPECT_THAT(Said(std::string("--device=no_such ") + flag, 2), HasSubstr("it is empty"));
  }
  EXPECT_THAT(Said("--device=no_such --tls_certificate=/dev/null --tls_key=/dev/null", 2),
              HasSubstr("the file is empty"));
  EXPECT_THAT(Said("--device=no_such --tls_client_authority=/dev/null", 2),
              HasSubstr("the file is empty"));
  EXPECT_THAT(Said("--device=no_such --tls_key=/", 2), HasSubstr("Is a directory"));
  EXPECT_THAT(Said(std::string("--descriptors=") + kProgram, 2),
              HasSubstr("not a FileDescriptorSet"));
  EXPECT_THAT(Said("--device=softdc0 --tls_key=" + std::string(kProgram), 1),
              HasSubstr("a certificate and its key"));
  EXPECT_THAT(Said("--device=softdc0 --listen=127.0.0.1", 1), HasSubstr("127.0.0.1"));
  EXPECT_THAT(Said("--device=softdc0 --listen=192.0.2.1:50051", 1),
              HasSubstr("gRPC does not listen"));
  EXPECT_THAT(Said("--reverse --tls_key=x", 2), HasSubstr("TLS with --reverse refused"));
  EXPECT_THAT(Said("--reverse --server=127.0.0.1:1", 1), HasSubstr("start the server first"));
  EXPECT_THAT(Said("--device=no_such_device", 1), HasSubstr("no_such_device"));
}

}  // namespace gateway_processes_test
}  // namespace sluice::gateway

// SPDX-License-Identifier: Apache-2.0
//
// route_client: a gRPC client that records half a route, says so, and waits to be killed.
//
//   route_client 127.0.0.1:50051
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdio>

#include "tests/tools/gateway/route_guide.grpc.pb.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using sluice::tests::route::RouteGuide;
  const auto stub =
      RouteGuide::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  sluice::tests::route::RouteSummary summary;
  const auto writer = stub->RecordRoute(&context, &summary);
  for (int i = 0; i < 3; ++i) {
    if (!writer->Write(sluice::tests::route::Point())) return 1;
  }
  std::printf("sent\n");
  std::fflush(stdout);
  for (;;) pause();
}

// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, what of "Connecting" is in a handshake's bytes or a completion's.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "tests/errors/catalogue.h"
#include "transport/peer/handshake.h"
#include "transport/peer/refusal.h"
#include "transport/peer/terms.h"
#include "transport/queue/completion_error.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;

TEST(HandshakeErrors, BytesOfSomethingElse) {
  const std::array<std::byte, peer::kHelloBytes> zeros{};
  ExpectCatalogued("not-sluice", peer::DecodeHello(zeros).status());
}

TEST(HandshakeErrors, AnotherRelease) {
  peer::HelloMessage hello = peer::EncodeHello({}, {});
  ++reinterpret_cast<uint8_t&>(hello[4]);
  ExpectCatalogued("version", peer::DecodeHello(hello).status());
}

TEST(RequestErrors, PeerThatDoesNotAnswer) {
  ibv_wc completion{};
  completion.status = IBV_WC_RETRY_EXC_ERR;
  completion.qp_num = 0x123;
  const queue::FailedRequest request{
      .operation = "send", .peer = "10.0.0.7:7471", .dctn = 0x45, .stream = 6, .length_bytes = 64};
  ExpectCatalogued("request-failed", queue::CompletionError(completion, request));
}

TEST(HandshakeErrors, UnlikePathMtus) {
  ExpectCatalogued("path-mtu", peer::RefusalStatus(peer::RefusalCode::kPathMtu, "10.0.0.7:7471",
                                                   peer::UnlikeMtus(1024, 512)));
}

TEST(RequestErrors, QueueThatCompletesNothing) {
  ExpectCatalogued("queue-stuck", queue::StuckError("10.0.0.7:7471", 2'147'000'000, 6'441'000'000));
}

TEST(RequestErrors, CompletionsThatCanNotBeRead) {
  ExpectCatalogued("poll-failed", queue::PollError("queue", "send"));
}

}  // namespace
}  // namespace sluice

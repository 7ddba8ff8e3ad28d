// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Large data": two sides on the software NIC.
#include "middleware/api/bulk.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/errors/catalogue.h"
#include "tests/middleware/api/bulk_pair.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;

class BulkErrors : public testing_support::BulkPair {
 protected:
  BulkErrors() : BulkPair(/*blocks=*/4) {}
};

TEST_F(BulkErrors, BlockThatIsDamaged) {
  source_[2 * 4104 + 17] ^= std::byte{1};
  ExpectCatalogued("damaged", one_->Move(at_one_, Request()));
}

TEST_F(BulkErrors, MemoryThatWasTakenBack) {
  ASSERT_TRUE(other_->Return(lent_.id).ok());
  ExpectCatalogued("lease-over", other_->Return(lent_.id));
  ExpectCatalogued("capability-over", one_->Move(at_one_, Request()));
}

TEST_F(BulkErrors, CapabilitiesThatAreNotForThis) {
  bulk::TransferRequest reading = Request();
  reading.kind = integrity::TransferKind::kRead;
  ExpectCatalogued("capability-right", one_->Move(at_one_, reading));
  bulk::TransferRequest beyond = Request();
  beyond.remote_offset = 4104;
  ExpectCatalogued("range", one_->Move(at_one_, beyond));
  bulk::TransferRequest within = Request();
  within.data_bytes = 4096;
  within.remote_offset = 100;
  ExpectCatalogued("block-offset", one_->Move(at_one_, within));
  ExpectCatalogued("capability-bytes", bulk::LoadCapability("nonsense").status());
}

TEST_F(BulkErrors, TransferThatNobodyBegan) {
  ExpectCatalogued("no-arrival", other_->Await(at_other_, 3, absl::ZeroDuration()).status());
}

TEST_F(BulkErrors, PeerThatWasNeverJoined) {
  ExpectCatalogued("no-peer", one_->Move({.index = 60, .generation = 9}, Request()));
}

TEST_F(BulkErrors, PeersOfADeviceWithoutDc) {
  auto rc = Bulk::Create({.device = "softdc0/rc"});
  ASSERT_TRUE(rc.ok()) << rc.status();
  std::string ticket, answer;
  ASSERT_TRUE((*rc)->Offer(&ticket).ok());
  ExpectCatalogued("unlike-ports", one_->Accept(ticket, &answer).status());
  ExpectCatalogued("own-reach", (*rc)->Offer(&ticket, bulk::Reach::kOwn).status());
}

}  // namespace
}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Large data": two sides on the software NIC.
#include "middleware/api/bulk.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/errors/catalogue.h"

namespace sluice {
namespace {

using integrity::Guard;
using testing_support::ExpectCatalogued;

constexpr integrity::Protection kDif{.memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc};
constexpr size_t kData = 4 * 4096;
constexpr size_t kBytes = 4 * 4104;

class BulkErrors : public testing::Test {
 protected:
  void SetUp() override {
    for (std::unique_ptr<Bulk>* bulk : {&one_, &other_}) {
      auto created = Bulk::Create({.device = "softdc0"});
      ASSERT_TRUE(created.ok()) << created.status();
      *bulk = *std::move(created);
    }
    std::string ticket, answer;
    at_one_ = *one_->Offer(&ticket);
    at_other_ = *other_->Accept(ticket, &answer);
    ASSERT_TRUE(one_->Complete(at_one_, answer).ok());
    Protect(kDif, std::vector<std::byte>(kData), source_);
    own_ = one_->Lend(source_, 0)->id;
    lent_ = *other_->Lend(target_, bulk::kMayWrite);
  }
  bulk::TransferRequest Request() {
    bulk::TransferRequest request;
    request.local = own_;
    request.remote = *bulk::LoadCapability(lent_.capability);
    request.data_bytes = kData;
    request.protection = kDif;
    return request;
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<Bulk> one_, other_;  // go first
  bulk::PeerId at_one_, at_other_;
  bulk::LeaseId own_;
  Bulk::Lent lent_;
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

}  // namespace
}  // namespace sluice

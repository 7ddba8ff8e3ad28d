// SPDX-License-Identifier: Apache-2.0
//
// Two programs' bulk in one process: connected, each with memory that the other may use.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_BULK_PAIR_H_
#define SLUICE_TESTS_MIDDLEWARE_API_BULK_PAIR_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/api/bulk.h"

namespace sluice::testing_support {

class BulkPair : public testing::Test {
 protected:
  static constexpr integrity::Protection kDif{.memory = integrity::Guard::kT10DifCrc,
                                              .wire = integrity::Guard::kT10DifCrc};

  // The memory of each side holds as many protected blocks.
  explicit BulkPair(size_t blocks)
      : data_bytes_(blocks * 4096), source_(blocks * 4104), target_(blocks * 4104) {}

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
    std::vector<std::byte> data(data_bytes_);
    for (size_t i = 0; i < data_bytes_; ++i) data[i] = static_cast<std::byte>(i * 7 + i / 300);
    Protect(kDif, data, source_);
    own_ = one_->Lend(source_, 0)->id;
    lent_ = *other_->Lend(target_, bulk::kMayWrite);
  }
  // All of one's memory, into the other's.
  bulk::TransferRequest Request(uint64_t tag = 0) {
    bulk::TransferRequest request;
    request.local = own_;
    request.remote = *bulk::LoadCapability(lent_.capability);
    request.data_bytes = data_bytes_;
    request.protection = kDif;
    request.tag = tag;
    return request;
  }

  const size_t data_bytes_;
  std::vector<std::byte> source_, target_;
  std::unique_ptr<Bulk> one_, other_;  // go first
  bulk::PeerId at_one_, at_other_;
  bulk::LeaseId own_;
  Bulk::Lent lent_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_BULK_PAIR_H_

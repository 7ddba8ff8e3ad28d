// SPDX-License-Identifier: Apache-2.0
//
// The programs of examples/blockstore as a newcomer runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/child_process.h"

namespace sluice::examples::blockstore {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(60);  // a hang; nothing waits for it otherwise

class BlockstoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server =
        tools::ChildProcess::Start({"examples/blockstore/blockstore_server", "--listen=127.0.0.1:0",
                                    "--device=softdc0", "--blocks=64"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    auto address = tools::ListeningAddress(*server_, kLong);
    ASSERT_TRUE(address.ok()) << address.status();
    address_ = *address;
  }
  void RunClient(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"examples/blockstore/blockstore_client",
                                          "--server=" + address_, "--device=softdc0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto client = tools::ChildProcess::Start(arguments);
    ASSERT_TRUE(client.ok()) << client.status();
    auto output = (*client)->ReadAll(kLong);
    ASSERT_TRUE(output.ok()) << output.status();
    output_ = *output;
    auto exit_code = (*client)->Wait(kLong);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    exit_code_ = *exit_code;
  }

  std::unique_ptr<tools::ChildProcess> server_;
  std::string address_;
  std::string output_;
  int exit_code_ = -1;
};

TEST_F(BlockstoreTest, BlocksComeBackAsTheyWereWritten) {
  RunClient({"--blocks=40"});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(output_, HasSubstr("wrote 40 blocks\nread 40 blocks, all as they were written\n"));
  EXPECT_THAT(output_, Not(HasSubstr("damaged")));
}

TEST_F(BlockstoreTest, DamagedBlocksAreShownAsAUserSeesThem) {
  RunClient({"--blocks=40", "--corrupt"});
  EXPECT_EQ(exit_code_, 0);
  EXPECT_THAT(output_, HasSubstr("read of a block that the store has damaged: DATA_LOSS: block 20 "
                                 "is damaged, found at the initiator"));
  EXPECT_THAT(output_, HasSubstr("write of a block that was damaged here: DATA_LOSS: block 20 is "
                                 "damaged, found at the initiator"));
  EXPECT_THAT(output_, HasSubstr("block 20, guard: expected 0x"));
  EXPECT_THAT(output_, HasSubstr("and the next write and read are good"));
}

TEST_F(BlockstoreTest, RangeOutsideTheStoreIsRefused) {
  RunClient({"--blocks=65"});
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(BlockstoreTest, MoreBlocksThanThereMayBeAreRefused) {
  RunClient({"--blocks=4000000000"});
  EXPECT_EQ(exit_code_, 1);
  auto server = tools::ChildProcess::Start(
      {"examples/blockstore/blockstore_server", "--device=softdc0", "--blocks=4000000000"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->Wait(kLong).value_or(-1), 1);
}

TEST_F(BlockstoreTest, ClientsComeAndGoAndTheServerShutsDown) {
  for (int i = 0; i < 3; ++i) {
    RunClient({"--blocks=8"});
    EXPECT_EQ(exit_code_, 0) << output_;
  }
  server_->Signal(SIGTERM);
  auto exit_code = server_->Wait(kLong);
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 0);
}

}  // namespace
}  // namespace sluice::examples::blockstore

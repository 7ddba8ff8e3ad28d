// SPDX-License-Identifier: Apache-2.0
//
// The example's programs as processes, on a softdc of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::examples::kv_store {
namespace {

using tools::ChildProcess;

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

class KvStoreTest : public ::testing::Test {
 protected:
  void StartServer(const std::string& slots) {
    server_ = testing_support::ServerProgram({"examples/kv_store/kv_server", "--slots=" + slots});
  }
  std::unique_ptr<ChildProcess> Start(std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"examples/kv_store/kv", "--device=softdc0", "--server=" + server_.address});
    return testing_support::StartProgram(std::move(words));
  }
  std::string Said(std::vector<std::string> words, int code = 0) {
    return testing_support::OutputOf(Start(std::move(words)).get(), code);
  }

  testing_support::ServerProgram server_;
};

TEST_F(KvStoreTest, WhatIsPutIsGot) {
  StartServer("64");
  Said({"put", "colour", "green"});
  Said({"put", "shape", "round"});
  EXPECT_EQ(Said({"get", "colour"}), "green\n");
  Said({"put", "colour", "red"});
  EXPECT_EQ(Said({"get", "colour"}), "red\n");
  EXPECT_EQ(Said({"get", "shape"}), "round\n");
  EXPECT_EQ(Said({"get", "taste"}, 1), "") << "there is none";
  EXPECT_EQ(Said({"put", "", "nothing"}, 1), "");
  EXPECT_EQ(Said({"put", "long", std::string(600, 'x')}, 1), "");
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(kLong).value_or(-1), 0);
}

// With as few slots as there may be, all keys share them.
TEST_F(KvStoreTest, KeysThatShareSlotsAreKeptApartUntilThereIsNoMore) {
  StartServer("8");
  for (int i = 0; i < 8; ++i) Said({"put", "k" + std::to_string(i), std::to_string(i * i)});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Said({"get", "k" + std::to_string(i)}), std::to_string(i * i) + "\n");
  }
  Said({"put", "one too many", "x"}, 1);
}

TEST_F(KvStoreTest, MoreSlotsThanThereMayBeAreRefused) {
  auto server = ChildProcess::Start(
      {"examples/kv_store/kv_server", "--device=softdc0", "--slots=4000000000"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->Wait(kLong).value_or(-1), 1);
}

TEST_F(KvStoreTest, ValueThatIsReadWhileItIsWrittenIsWhole) {
  StartServer("64");
  Said({"churn", "k", "1"});
  const auto churn = Start({"churn", "k", "1000"});
  const std::string said = Said({"watch", "k", "200"});
  EXPECT_EQ(said.rfind("200 values, each of one letter", 0), 0u) << said;
  EXPECT_EQ(churn->Wait(kLong).value_or(-1), 0);
}

}  // namespace
}  // namespace sluice::examples::kv_store

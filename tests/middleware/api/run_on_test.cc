// SPDX-License-Identifier: Apache-2.0
//
// Coroutines that leave their home for an executor, and come back.
#include "middleware/api/run_on.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "middleware/api/thread_pool.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/executors.h"

namespace sluice {
namespace run_on_test {

using testing_support::ChatCoServiceBase;
using testing_support::ChatWorld;
using testing_support::Gate;
using testing_support::InlineExecutor;
using testing_support::Line;

// Blocks on its executor, in each shape of method.
class BlockingService final : public ChatCoServiceBase {
 public:
  explicit BlockingService(Executor* executor) : executor_(executor) {}

  Task<absl::Status> Say(ServerContext& context, const Line& request, Line* reply) override {
    const std::thread::id home = std::this_thread::get_id();
    if (request.text() == "function") {
      const auto length = [&request] { return std::to_string(request.text().size()); };
      reply->set_text(co_await RunOn(executor_, length));
    } else if (request.text() == "throw") {
      try {
        co_await RunOn(executor_, [] { throw std::runtime_error("oops"); });
      } catch (const std::runtime_error& error) {
        reply->set_text(error.what());
      }
    } else if (request.text() == "stop") {
      co_await RunOn(executor_);
      const std::stop_token stop = context.stop_token();
      const std::stop_callback on_stop(stop, [this] { stopped.Open(); });
      blocked.Open();
      stopped.Wait();
      co_return absl::CancelledError("nobody waits");
    } else if (request.text() == "end") {
      co_await RunOn(executor_);
      const absl::Status ended = at_executor();
      co_await ComeHome();
      reply->set_text(std::string(absl::StatusCodeToString(ended.code())));
    } else if (request.text() == "stay") {
      co_await RunOn(executor_);
      reply->set_text("from the executor");
      co_return absl::OkStatus();
    }
    reply->set_number(std::this_thread::get_id() == home);
    co_return absl::OkStatus();
  }
  // Reads and writes on the executor's thread.
  Task<absl::Status> Talk(ServerContext&, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    const std::thread::id home = std::this_thread::get_id();
    Line line;
    for (;;) {
      co_await RunOn(executor_);
      away += std::this_thread::get_id() != home;
      if (!co_await reader.Read(&line)) break;
      back += std::this_thread::get_id() == home;
      co_await RunOn(executor_);
      if (!co_await writer.Write(line)) break;
      back += std::this_thread::get_id() == home;
    }
    co_await RunOn(executor_);
    co_return absl::OkStatus();
  }
  Task<absl::Status> Tail(ServerContext&, const Line& request, ServerWriter<Line> writer) override {
    Line line;
    for (int64_t i = 0; i < request.number(); ++i) {
      co_await RunOn(executor_);
      blocked.Open();
      go.Wait();
      line.set_number(i);
      if (!co_await writer.Write(line)) break;
    }
    co_return absl::OkStatus();
  }

  Gate blocked, go, stopped;
  std::function<absl::Status()> at_executor;
  int away = 0;
  int back = 0;

 private:
  Executor* const executor_;
};

class RunOnTest : public ChatWorld {
 protected:
  void SetUp() override { Start(&blocking_); }
  absl::StatusOr<Line> Say(const std::string& text) {
    CallContext context(absl::Seconds(60));
    return client().Say(context, Text(text));
  }

  ThreadPool pool_{2};
  BlockingService blocking_{&pool_};
};

TEST_F(RunOnTest, FunctionGivesItsResultAtHome) {
  const auto reply = Say("function");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "8");
  EXPECT_TRUE(reply->number());
}

TEST_F(RunOnTest, FunctionThrowsAtHome) {
  const auto reply = Say("throw");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "oops");
  EXPECT_TRUE(reply->number());
}

TEST_F(RunOnTest, HandlerMayEndOnTheExecutor) {
  const auto reply = Say("stay");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "from the executor");
}

TEST_F(RunOnTest, ReadAndWriteComeHomeByThemselves) {
  CallContext context(absl::Seconds(60));
  auto stream = client().Talk(context);
  constexpr int kLines = 40;  // more than a window
  for (int i = 0; i < kLines; ++i) {
    ASSERT_TRUE(stream.Write(Text("line", i)));
    Line line;
    ASSERT_TRUE(stream.Read(&line));
    EXPECT_EQ(line.number(), i);
  }
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
  server_.reset();
  EXPECT_EQ(blocking_.away, kLines + 1);
  EXPECT_EQ(blocking_.back, 2 * kLines);
}

TEST_F(RunOnTest, StreamingHandlerThatBlocksHoldsNobodyUp) {
  CallContext context(absl::Seconds(60));
  auto stream = client().Tail(context, Text("", 3));
  std::thread other([&] {
    blocking_.blocked.Wait();
    EXPECT_TRUE(Say("hello").ok()) << "the polling thread is blocked";
    blocking_.go.Open();
  });
  Line line;
  int lines = 0;
  while (stream.Read(&line)) ++lines;
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(lines, 3);
  other.join();
}

TEST_F(RunOnTest, StopIsHeardOnTheExecutor) {
  std::stop_source stop;
  CallContext context(absl::Seconds(60));
  context.set_stop_token(stop.get_token());
  std::thread stopper([&] {
    blocking_.blocked.Wait();
    stop.request_stop();
  });
  EXPECT_EQ(client().Say(context, Text("stop")).status().code(), absl::StatusCode::kCancelled);
  blocking_.stopped.Wait();
  stopper.join();
}

TEST_F(RunOnTest, ServerCanNotBeEndedFromTheExecutor) {
  blocking_.at_executor = [this] { return server_->Shutdown(absl::Seconds(1)); };
  auto reply = Say("end");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "FAILED_PRECONDITION");
  blocking_.at_executor = [this] { return server_->Wait(); };
  reply = Say("end");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->text(), "FAILED_PRECONDITION");
  EXPECT_TRUE(Say("hello").ok());
}

TEST_F(RunOnTest, EndOfTheServerWaitsForTheExecutor) {
  CallContext context(absl::Seconds(60));
  const Line request = Text("stop");
  Line reply;
  ASSERT_TRUE(client().StartSay(context, request, &reply, [](const absl::Status&) {}).ok());
  blocking_.blocked.Wait();
  server_.reset();  // stops it, and waits
  EXPECT_TRUE(blocking_.stopped.open());
}

TEST_F(RunOnTest, ExecutorMayRunItAtOnce) {
  InlineExecutor at_once;
  BlockingService service(&at_once);
  Start(&service);
  for (const char* text : {"function", "throw", "stay"}) {
    const auto reply = Say(text);
    EXPECT_TRUE(reply.ok()) << text << ": " << reply.status();
  }
  TearDown();
}

Task<void> WithoutHome(Executor* executor, std::vector<std::thread::id>* ids, Gate* done) {
  ids->push_back(std::this_thread::get_id());
  co_await RunOn(executor);
  ids->push_back(std::this_thread::get_id());
  co_await ComeHome();
  ids->push_back(std::this_thread::get_id());
  done->Open();
}

TEST(RunOnWithoutHomeTest, ItStaysOnTheExecutor) {
  std::vector<std::thread::id> ids;
  Gate done;
  {
    ThreadPool pool(1);
    Spawn(WithoutHome(&pool, &ids, &done), [] {});
    done.Wait();
  }
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_EQ(ids[2], ids[1]);
}

}  // namespace run_on_test
}  // namespace sluice

// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/when.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "middleware/api/run_on.h"
#include "middleware/api/sleep.h"
#include "middleware/api/thread_pool.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/middleware/api/endings.h"

namespace sluice {
namespace when_test {

using testing_support::Begin;
using testing_support::ChatClient;
using testing_support::ChatWorld;
using testing_support::HomeOfTheTest;
using testing_support::Line;

constexpr int64_t kSecond = 1'000'000'000;

Task<int> Number(int number) { co_return number; }
Task<absl::Status> Sleeper(int seconds, std::stop_token stop = {}) {
  co_return co_await sluice::SleepFor(absl::Seconds(seconds), stop);
}
Task<absl::Status> Fails(int after_seconds) {
  const absl::Status slept = co_await sluice::SleepFor(absl::Seconds(after_seconds));
  co_return slept.ok() ? absl::NotFoundError("nothing") : slept;
}
Task<void> Throws(int after_seconds, std::string what) {
  (void)co_await sluice::SleepFor(absl::Seconds(after_seconds));
  throw std::runtime_error(what);
}
Task<void> Waits(int seconds, std::stop_token stop, bool* ended) {
  (void)co_await sluice::SleepFor(absl::Seconds(seconds), stop);
  *ended = true;
}

class WhenTest : public ::testing::Test {
 protected:
  // Runs it at home, and keeps what it gives.
  template <typename T>
  std::shared_ptr<std::optional<T>> Run(Task<T> task) {
    auto result = std::make_shared<std::optional<T>>();
    Spawn(
        std::move(task), [result](T value) { result->emplace(std::move(value)); }, &home_);
    return result;
  }
  void Advance(int seconds) {
    home_.clock.Advance(seconds * kSecond + kSecond / 1000);
    home_.Run();
  }

  HomeOfTheTest home_;
  std::stop_source rest_;
};

TEST_F(WhenTest, AllGiveTheirResultsInOrder) {
  bool waited = false;
  auto all = Run(WhenAll(Number(7), Waits(2, {}, &waited), Sleeper(1)));
  EXPECT_FALSE(all->has_value());
  Advance(1);
  EXPECT_FALSE(all->has_value());
  Advance(1);
  ASSERT_TRUE(all->has_value());
  EXPECT_TRUE(waited);
  EXPECT_EQ(std::get<0>(**all), 7);
  EXPECT_TRUE(std::get<2>(**all).ok());
}

TEST_F(WhenTest, AllMayEndBeforeOneWaits) {
  EXPECT_EQ(**Run(WhenAll(Number(1), Number(2))), std::make_tuple(1, 2));
  std::vector<Task<int>> tasks;
  EXPECT_TRUE((*Run(WhenAll(std::move(tasks))))->empty());
  EXPECT_EQ(**Run(WhenAll()), std::make_tuple());
}

TEST_F(WhenTest, AllStopTheRestWhenOneFails) {
  std::vector<Task<absl::Status>> tasks;
  tasks.push_back(Sleeper(1, rest_.get_token()));
  tasks.push_back(Fails(2));
  tasks.push_back(Sleeper(1000, rest_.get_token()));
  auto all = Run(WhenAll(rest_, std::move(tasks)));
  Advance(1);
  EXPECT_FALSE(rest_.stop_requested());
  Advance(1);
  EXPECT_TRUE(rest_.stop_requested());
  ASSERT_TRUE(all->has_value());
  EXPECT_TRUE((**all)[0].ok());
  EXPECT_EQ((**all)[1].code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((**all)[2].code(), absl::StatusCode::kCancelled);
}

TEST_F(WhenTest, AllThrowTheFirstExceptionInOrderWhenAllHaveEnded) {
  bool ended = false;
  const auto run = [&]() -> Task<std::string> {
    try {
      co_await WhenAll(rest_, Waits(1000, rest_.get_token(), &ended), Throws(2, "second"),
                       Throws(1, "first"));
    } catch (const std::runtime_error& error) {
      co_return std::string(error.what()) + (ended ? " after all" : " too early");
    }
    co_return "nothing";
  };
  auto said = Run(run());
  Advance(1);
  EXPECT_TRUE(ended) << "an exception stops the rest, too";
  EXPECT_FALSE(said->has_value());
  Advance(1);
  ASSERT_TRUE(said->has_value());
  EXPECT_EQ(**said, "second after all");
}

TEST_F(WhenTest, AnyGivesTheFirstAndStopsTheRest) {
  auto any = Run(WhenAny(rest_, Sleeper(1000, rest_.get_token()), Sleeper(1), Sleeper(3)));
  Advance(1);
  EXPECT_TRUE(rest_.stop_requested());
  EXPECT_FALSE(any->has_value()) << "the last does not look at the token";
  Advance(2);
  ASSERT_TRUE(any->has_value());
  EXPECT_EQ((*any)->index, 1u);
  EXPECT_TRUE((*any)->value.ok());
}

TEST_F(WhenTest, AnyOfVoidMayThrow) {
  bool ended = false;
  const auto run = [&](int waits) -> Task<std::string> {
    try {
      const auto first =
          co_await WhenAny(rest_, Waits(waits, rest_.get_token(), &ended), Throws(2, "oops"));
      co_return std::to_string(first.index);
    } catch (const std::runtime_error& error) {
      co_return error.what();
    }
  };
  auto waited = Run(run(1));
  Advance(1);
  Advance(1);
  EXPECT_EQ(**waited, "0") << "the exception of a later one is dropped";
  rest_ = std::stop_source();
  auto thrown = Run(run(1000));
  Advance(2);
  EXPECT_EQ(**thrown, "oops");
}

TEST_F(WhenTest, AnyOfNothingThrows) {
  const auto run = [&]() -> Task<bool> {
    try {
      std::vector<Task<int>> none;
      (void)co_await WhenAny(rest_, std::move(none));
    } catch (const std::invalid_argument&) {
      co_return true;
    }
    co_return false;
  };
  EXPECT_TRUE(**Run(run()));
}

TEST_F(WhenTest, ResultsMayBeMoveOnly) {
  const auto make = [](int number) -> Task<std::unique_ptr<int>> {
    co_return std::make_unique<int>(number);
  };
  auto all = Run(WhenAll(make(1), make(2)));
  EXPECT_EQ(*std::get<1>(**all), 2);
}

TEST_F(WhenTest, DestroyedWithItsTasks) {
  bool ended = false;
  const auto run = [&]() -> Task<void> {
    co_await WhenAll(Waits(1, {}, &ended), Waits(2, {}, &ended));
    ADD_FAILURE() << "it was to be gone";
  };
  { auto owned = Begin(&home_, run()); }
  Advance(3);
  EXPECT_FALSE(ended);
}

TEST_F(WhenTest, TasksThatEndOnAnExecutorComeHomeOnce) {
  ThreadPool pool(4);
  std::atomic<int> ran{0};
  const auto work = [&](int number) -> Task<int> {
    co_await RunOn(&pool);
    ++ran;
    co_return number;
  };
  const auto run = [&]() -> Task<bool> {
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 64; ++i) tasks.push_back(work(i));
    const std::thread::id home = std::this_thread::get_id();
    const std::vector<int> numbers = co_await WhenAll(std::move(tasks));
    for (int i = 0; i < 64; ++i) EXPECT_EQ(numbers[i], i);
    co_return std::this_thread::get_id() == home;
  };
  auto at_home = Run(run());
  while (!at_home->has_value()) home_.Run();
  EXPECT_TRUE(**at_home);
  EXPECT_EQ(ran, 64);
}

using WhenCallsTest = ChatWorld;

Task<absl::StatusOr<Line>> Ask(ChatClient client, std::string text, std::stop_token stop) {
  CallContext context(absl::Seconds(600));
  context.set_stop_token(std::move(stop));
  Line request;
  request.set_text(text);
  co_return co_await client.CoSay(context, request);
}

TEST_F(WhenCallsTest, SlowerCallIsCancelled) {
  std::stop_source rest;
  std::optional<FirstOf<absl::StatusOr<Line>>> first;
  Spawn(WhenAny(rest, Ask(client(), "wait", rest.get_token()),
                Ask(client(), "quick", rest.get_token())),
        [&](FirstOf<absl::StatusOr<Line>> one) { first.emplace(std::move(one)); });
  DriveUntil([&] { return first.has_value(); });
  EXPECT_EQ(first->index, 1u);
  ASSERT_TRUE(first->value.ok()) << first->value.status();
  EXPECT_EQ(first->value->text(), "quick");
  chat_.stopped.Wait();
}

}  // namespace when_test
}  // namespace sluice

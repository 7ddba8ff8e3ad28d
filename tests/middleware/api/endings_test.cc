// SPDX-License-Identifier: Apache-2.0
//
// Objects that end while something else still refers to them: coroutines that are destroyed while they wait, and channels
// whose last reference is dropped in their own callbacks. Servers and messengers: endings_handler_test.cc.
#include "tests/middleware/api/endings.h"

#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/middleware/api/chat_service.h"
#include "tests/support/kept_log.h"

namespace sluice {
namespace endings_test {

using testing_support::Begin;
using testing_support::ChatClient;
using testing_support::ChatCoServiceBase;
using testing_support::Gate;
using testing_support::HomeOfTheTest;
using testing_support::KeptLog;
using testing_support::LastWord;
using testing_support::Line;
using testing_support::Owned;

class EndingsTest : public testing_support::EndingsWorld {
 protected:
  // Starts a call whose callback lets the last reference go, and another one that ends with the channel.
  void LetGoInACallback(std::shared_ptr<Channel> channel, Gate* begin) {
    const ChatClient client(channel);
    EXPECT_TRUE(client
                    .StartSay(forever_, wait_, &unanswered_,
                              [this](const absl::Status& status) {
                                left_over_ = status.code();
                                left_over_ended_.Open();
                              })
                    .ok());
    // It stands in the callback: the client's reference goes with this function, the channel's with the callback.
    auto held = std::make_shared<std::shared_ptr<Channel>>(std::move(channel));
    EXPECT_TRUE(client
                    .StartSay(forever_, hello_, &answer_,
                              [this, held, begin](const absl::Status& status) {
                                EXPECT_TRUE(status.ok()) << status;
                                if (begin != nullptr) begin->Wait();
                                EXPECT_EQ(held->use_count(), 1);
                                held->reset();
                                let_go_ = true;
                              })
                    .ok());
  }
  void ExpectTheChannelHasEnded() {
    gone_->Wait();
    EXPECT_EQ(left_over_.load(), absl::StatusCode::kCancelled);
    chat_.stopped.Wait();  // the server has seen it go
  }

  Line unanswered_;
  std::atomic<bool> let_go_{false};
  std::atomic<absl::StatusCode> left_over_{absl::StatusCode::kUnknown};
  Gate left_over_ended_;
};

// ---- Coroutines that are destroyed while they wait

TEST_F(EndingsTest, CoroutineThatIsDestroyedWhileItReadsIsForgotten) {
  const auto channel = ConnectLoop();
  CallContext context(absl::Seconds(600));
  auto talk = ChatClient(channel).Talk(context);
  Line into;
  const auto read = [&]() -> Task<void> {
    (void)co_await talk.CoRead(&into);
    ADD_FAILURE() << "nobody was to go on";
  };
  HomeOfTheTest home;
  { const Owned reader = Begin(nullptr, read()); }
  { const Owned reader = Begin(&home, read()); }
  // The stream goes on, and its next reader gets the message, which comes while nobody reads.
  EXPECT_TRUE(talk.Write(Text("hello", 7)));
  for (int calls = 0; calls < 2; ++calls) {
    CallContext between(absl::Seconds(60));
    EXPECT_TRUE(ChatClient(channel).Say(between, hello_).ok());
  }
  EXPECT_TRUE(talk.Read(&into));
  EXPECT_EQ(into.number(), 7);
  talk.WritesDone();
  EXPECT_FALSE(talk.Read(&into));
  EXPECT_TRUE(talk.Finish().ok());
  EXPECT_EQ(home.Run(), 0);
}

TEST_F(EndingsTest, CoroutineThatIsDestroyedWhileItWritesIsForgotten) {
  const auto channel = ConnectLoop();
  CallContext context(absl::Seconds(600));
  auto talk = ChatClient(channel).Talk(context);
  int written = 0;
  const auto write = [&]() -> Task<void> {
    for (Line line = Text("hello"); co_await talk.CoWrite(line); ++written)
      line.set_number(written);
    ADD_FAILURE() << "nobody was to go on";
  };
  // Nobody polls meanwhile: it waits when the window is used up.
  { const Owned writer = Begin(nullptr, write()); }
  ASSERT_GT(written, 0);
  talk.WritesDone();
  Line into;
  for (int i = 0; i < written; ++i) ASSERT_TRUE(talk.Read(&into)) << i;
  EXPECT_FALSE(talk.Read(&into));
  EXPECT_TRUE(talk.Finish().ok());
}

TEST_F(EndingsTest, CoroutineThatIsDestroyedWithItsStreamIsForgotten) {
  const auto channel = ConnectLoop();
  CallContext context(absl::Seconds(600));
  const auto read = [&]() -> Task<void> {
    auto talk = ChatClient(channel).Talk(context);
    Line into;
    (void)co_await talk.CoRead(&into);
    ADD_FAILURE() << "nobody was to go on";
  };
  const auto finish = [&]() -> Task<void> {
    auto talk = ChatClient(channel).Talk(context);
    (void)co_await talk.CoFinish();
    ADD_FAILURE() << "nobody was to go on";
  };
  { const Owned reader = Begin(nullptr, read()); }
  { const Owned finisher = Begin(nullptr, finish()); }
  channel->Poll();
  EXPECT_EQ(channel->counters().calls_failed, 2u) << "both calls are cancelled";
}

// The end of a call tells both who wait for its stream; the first destroys the second.
TEST_F(EndingsTest, CoroutineThatIsDestroyedByAnotherAtTheEndOfTheirCallIsForgotten) {
  const auto channel = ConnectLoop();
  CallContext context(absl::Seconds(600));
  auto talk = std::make_optional(ChatClient(channel).Talk(context));
  std::optional<Owned> reader;
  Line into;
  bool over = false;
  const auto read = [&]() -> Task<void> {
    (void)co_await talk->CoRead(&into);
    ADD_FAILURE() << "nobody was to go on";
  };
  const auto write = [&]() -> Task<void> {
    Line line;
    while (co_await talk->CoWrite(line)) line.set_number(line.number() + 1);
    reader.reset();
    talk.reset();
    over = true;
  };
  reader.emplace(Begin(nullptr, read()));
  const Owned writer = Begin(nullptr, write());
  EXPECT_FALSE(over);
  talk->Cancel();
  EXPECT_TRUE(channel->Drive([&] { return over; }, absl::Seconds(60)));
}

// The end of a call tells the writer, which destroys the stream before the reader is told.
TEST_F(EndingsTest, StreamThatIsDestroyedAtTheEndOfItsCallTellsItsOtherCallback) {
  const auto channel = ConnectLoop();
  CallContext context(absl::Seconds(600));
  auto talk = std::make_optional(ChatClient(channel).Talk(context));
  std::optional<bool> read;
  Line into;
  bool over = false;
  const auto write = [&]() -> Task<void> {
    Line line;
    while (co_await talk->CoWrite(line)) line.set_number(line.number() + 1);
    talk.reset();
    over = true;
  };
  talk->StartRead(&into, [&](bool ok) { read = ok; });
  const Owned writer = Begin(nullptr, write());
  EXPECT_FALSE(over);
  talk->Cancel();
  EXPECT_TRUE(channel->Drive([&] { return over; }, absl::Seconds(60)));
  EXPECT_EQ(read, false);
}

// Begins to read and to write, and gives both up.
class GivesUp final : public ChatCoServiceBase {
 public:
  Task<absl::Status> Talk(ServerContext& context, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    const auto read = [&]() -> Task<void> {
      Line line;
      (void)co_await reader.Read(&line);
      ADD_FAILURE() << "nobody was to go on";
    };
    const auto write = [&]() -> Task<void> {
      const Line line;
      while (co_await writer.Write(line)) {
      }
      ADD_FAILURE() << "nobody was to go on";
    };
    { const Owned gone = Begin(nullptr, read()); }
    { const Owned gone = Begin(nullptr, write()); }
    given_up.Open();
    co_await never_.Wait(context.stop_token());
    stopped.Open();
    co_return absl::CancelledError("nobody waits");
  }

  Gate given_up, stopped;

 private:
  Signal never_;
};

TEST_F(EndingsTest, CoroutineOfAHandlerThatIsDestroyedWhileItWaitsIsForgotten) {
  GivesUp gives_up;
  Start(&gives_up);
  CallContext context(absl::Seconds(600));
  {
    auto talk = client().Talk(context);
    gives_up.given_up.Wait();
    talk.Cancel();  // has the server look who reads and writes
    EXPECT_TRUE(absl::IsCancelled(talk.Finish()));
    gives_up.stopped.Wait();
  }
  TearDown();
}

TEST_F(EndingsTest, CoroutineThatIsDestroyedWhenItsCallHasEndedDoesNotGoOn) {
  HomeOfTheTest home;
  CallContext context(absl::Seconds(600));
  const auto say = [&](ChatClient client) -> Task<void> {
    (void)co_await client.CoSay(context, hello_);
    ADD_FAILURE() << "nobody was to go on";
  };
  {
    const Owned caller = Begin(&home, say(client()));
    home.posted.Wait();  // the call has ended, and the coroutine would go on at home
  }
  EXPECT_EQ(home.Run(), 0);
}

TEST_F(EndingsTest, CoroutineThatIsDestroyedWhenItsMessageIsThereDoesNotGoOn) {
  HomeOfTheTest home;
  CallContext context(absl::Seconds(600));
  auto talk = client().Talk(context);
  Line into;
  const auto read = [&]() -> Task<void> {
    (void)co_await talk.CoRead(&into);
    ADD_FAILURE() << "nobody was to go on";
  };
  {
    const Owned reader = Begin(&home, read());
    EXPECT_TRUE(talk.Write(hello_));
    home.posted.Wait();
  }
  EXPECT_EQ(home.Run(), 0);
}

// The thread that drives ends the call at the same time: a race on purpose.
TEST_F(EndingsTest, CoroutinesThatAreDestroyedWhileTheirCallsEnd) {
  CallContext context(absl::Seconds(600));
  const auto say = [&](ChatClient client) -> Task<void> {
    (void)co_await client.CoSay(context, hello_);
    ADD_FAILURE() << "nobody was to go on";
  };
  const auto read = [&](ChatClient client) -> Task<void> {
    auto tail = client.Tail(context, Text("hello", 1));
    Line into;
    (void)co_await tail.CoRead(&into);
    (void)co_await tail.CoFinish();
  };
  for (int round = 0; round < 400; ++round) {
    HomeOfTheTest home;
    {
      const Owned caller = Begin(&home, say(client()));
      const Owned reader = Begin(&home, read(client()));
      for (int yields = round % 20; yields > 0; --yields) std::this_thread::yield();
    }
    ASSERT_EQ(home.Run(), 0);
  }
}

// ---- Channels

TEST_F(EndingsTest, LastReferenceGoesInACallbackOfTheBackgroundThread) {
  ChannelOptions options;
  options.log = std::make_shared<LastWord>(gone_);
  Gate begin;
  LetGoInACallback(ConnectWith(options), &begin);
  options.log.reset();
  begin.Open();
  ExpectTheChannelHasEnded();
}

TEST_F(EndingsTest, LastReferenceGoesInACallbackInPoll) {
  auto channel = ConnectLoop();
  Channel* const loop = channel.get();
  LetGoInACallback(std::move(channel), nullptr);
  while (!let_go_) loop->Poll();
  EXPECT_TRUE(gone_->open()) << "Poll() ends it before it returns";
  ExpectTheChannelHasEnded();
}

TEST_F(EndingsTest, LastReferenceGoesInACallbackInDrive) {
  auto channel = ConnectLoop();
  Channel* const driven = channel.get();
  LetGoInACallback(std::move(channel), nullptr);
  EXPECT_TRUE(driven->Drive([this] { return let_go_.load(); }, absl::Seconds(60)));
  EXPECT_TRUE(gone_->open()) << "Drive() ends it before it returns";
  ExpectTheChannelHasEnded();
}

TEST_F(EndingsTest, LastReferenceGoesInACallbackInACall) {
  auto channel = ConnectLoop();
  Channel* const called = channel.get();
  LetGoInACallback(std::move(channel), nullptr);
  CallContext context(absl::Seconds(60));
  Line reply;
  const absl::Status status = called->Call(ChatClient::SayMethod(), context, hello_, &reply);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(let_go_) << "replies come in the order of the calls";
  EXPECT_TRUE(gone_->open()) << "Call() ends it before it returns";
  ExpectTheChannelHasEnded();
}

// Another thread requests a stop while the thread that drives has dropped the last reference, and is still in the callback.
TEST_F(EndingsTest, StopOnAnotherThreadLeavesTheChannelToTheThreadThatDroppedIt) {
  auto channel = ConnectLoop();
  Channel* const loop = channel.get();
  std::stop_source stop;
  CallContext stoppable(absl::Seconds(600));
  stoppable.set_stop_token(stop.get_token());
  std::atomic<bool> stopped{false};
  EXPECT_TRUE(ChatClient(channel)
                  .StartSay(stoppable, wait_, &unanswered_,
                            [&](const absl::Status& status) {
                              EXPECT_TRUE(absl::IsCancelled(status)) << status;
                              stopped = true;
                            })
                  .ok());
  auto held = std::make_shared<std::shared_ptr<Channel>>(std::move(channel));
  EXPECT_TRUE(ChatClient(*held)
                  .StartSay(forever_, hello_, &answer_,
                            [&, held](const absl::Status&) {
                              held->reset();
                              std::thread([&] { stop.request_stop(); }).join();
                              EXPECT_FALSE(gone_->open()) << "the callback still runs in Poll()";
                              let_go_ = true;
                            })
                  .ok());
  held.reset();
  while (!let_go_) loop->Poll();
  EXPECT_TRUE(gone_->open());
  EXPECT_TRUE(stopped);
}

TEST_F(EndingsTest, CancelInACallbackOfAChannelThatEndsDoesNotEndItAgain) {
  auto channel = ConnectLoop();
  Channel* const loop = channel.get();
  bool cancelled = false;
  EXPECT_TRUE(ChatClient(channel)
                  .StartSay(forever_, wait_, &unanswered_,
                            [&](const absl::Status& status) {
                              EXPECT_TRUE(absl::IsCancelled(status)) << status;
                              loop->Cancel(0);
                              cancelled = true;
                            })
                  .ok());
  auto held = std::make_shared<std::shared_ptr<Channel>>(std::move(channel));
  EXPECT_TRUE(ChatClient(*held)
                  .StartSay(forever_, hello_, &answer_,
                            [&, held](const absl::Status&) {
                              held->reset();
                              let_go_ = true;
                            })
                  .ok());
  held.reset();
  while (!let_go_) loop->Poll();
  EXPECT_TRUE(cancelled);
  EXPECT_TRUE(gone_->open());
}

// Calls on the channel before the first call that it sees.
class CallsFirst final : public ClientInterceptor {
 public:
  absl::Status OnCall(ClientCall&) override {
    if (what) std::exchange(what, nullptr)();
    return absl::OkStatus();
  }
  std::function<void()> what;
};

TEST_F(EndingsTest, LastReferenceGoesInACallInsideACall) {
  const auto calls_first = std::make_shared<CallsFirst>();
  ChannelOptions options;
  options.driving = Driving::kCaller;
  options.log = std::make_shared<LastWord>(gone_);
  options.interceptors = {calls_first};
  auto channel = ConnectWith(options);
  options.log.reset();
  Channel* const called = channel.get();
  LetGoInACallback(std::move(channel), nullptr);
  const auto call = [&] {
    CallContext context(absl::Seconds(60));
    Line reply;
    const absl::Status status = called->Call(ChatClient::SayMethod(), context, hello_, &reply);
    EXPECT_TRUE(status.ok()) << status;
  };
  calls_first->what = [&] {
    call();
    EXPECT_TRUE(let_go_);
    EXPECT_FALSE(gone_->open()) << "the outer call has not begun";
  };
  call();
  EXPECT_TRUE(gone_->open()) << "the outer call ends it before it returns";
  ExpectTheChannelHasEnded();
}

// The background thread runs the callback while the call's thread may still be starting the call: a race on purpose.
TEST_F(EndingsTest, LastReferenceGoesWhileItsCallIsBeingStarted) {
  for (int round = 0; round < 100; ++round) {
    const auto gone = std::make_shared<Gate>();
    ChannelOptions options;
    options.log = std::make_shared<LastWord>(gone);
    Channel* channel = nullptr;
    auto* const held = new std::shared_ptr<Channel>(ConnectWith(std::move(options)));
    channel = held->get();
    const CallDone let_go = [](void* argument, const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      delete static_cast<std::shared_ptr<Channel>*>(argument);
    };
    ASSERT_TRUE(
        channel->StartCall(ChatClient::SayMethod(), forever_, hello_, &answer_, let_go, held).ok());
    gone->Wait();
  }
}

TEST_F(EndingsTest, DriveInACallbackAsksOnceAndTheLogSaysSo) {
  const auto log = std::make_shared<KeptLog>();
  ChannelOptions options;
  options.log = log;
  const auto channel = ConnectWith(options);
  std::atomic<int> asked{0};
  std::vector<bool> answers;
  Gate ended;
  EXPECT_TRUE(ChatClient(channel)
                  .StartSay(forever_, hello_, &answer_,
                            [&](const absl::Status&) {
                              for (const bool answer : {true, false}) {
                                answers.push_back(channel->Drive(
                                    [&] {
                                      ++asked;
                                      return answer;
                                    },
                                    absl::Milliseconds(100)));
                              }
                              ended.Open();
                            })
                  .ok());
  ended.Wait();
  EXPECT_EQ(answers, (std::vector<bool>{true, false}));
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(log->Has("drive refused"));
}

// The thread that drives stands in a callback, and the call's own time has no limit.
TEST_F(EndingsTest, DeadlineOfTheServersCallBoundsTheWaitForTheChannel) {
  Gate blocks, back;
  bool came_back = false;
  Gate left;
  ASSERT_TRUE(client()
                  .StartSay(forever_, hello_, &answer_,
                            [&](const absl::Status&) {
                              blocks.Open();
                              came_back = back.WaitFor(absl::Seconds(10));
                              left.Open();
                            })
                  .ok());
  blocks.Wait();
  const std::string peer = "client:1", tenant;
  call::Incoming incoming{};
  incoming.method = &ChatClient::SayMethod();
  incoming.peer = &peer;
  incoming.tenant = &tenant;
  incoming.deadline_ns = base::RealClock().NowNs() + 1'000'000;
  ServerContext server(incoming);
  CallContext context = CallContext::FromServer(server);
  Line reply;
  const absl::Status status = channel_->Call(ChatClient::SayMethod(), context, hello_, &reply);
  back.Open();
  left.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_TRUE(came_back) << "it waited until the callback returned";
}

}  // namespace endings_test
}  // namespace sluice

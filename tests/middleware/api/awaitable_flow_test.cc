// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/awaitable_flow.h"

#include <coroutine>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tests/middleware/flow/flow_fixture.h"

namespace sluice {
namespace awaitable_flow_test {

using flow::BytesOf;
using flow::Flow;
using flow::Offer;

// The least: begins at once, and owns its frame.
class Task {
 public:
  struct promise_type {
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ~Task() {
    if (handle_) handle_.destroy();
  }
  bool done() const { return handle_.done(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Task Read(AwaitableFlow* end, std::vector<std::string>* heard) {
  while (const auto message = co_await end->Next()) heard->push_back(TextOf(*message));
}

Task SendNumbers(AwaitableFlow* end, Flow flow, int count, absl::Status* status) {
  for (int i = 0; i < count && status->ok(); ++i) {
    const std::string text = std::to_string(i);
    *status = co_await end->Send(flow, BytesOf(text));
  }
}

class AwaitableFlowTest : public flow::FlowTest {
 protected:
  static constexpr uint32_t kWindow = 4;

  // There one accepts and reads, or not; here one opens.
  void Connect() {
    Start();
    ASSERT_TRUE(b_->engine
                    .Accept("awaited", there_.options(),
                            [this](Flow flow, const Offer&) {
                              there_flow_ = flow;
                              return &there_;
                            })
                    .ok());
    auto opened = a_->engine.Open("b", 1, "awaited", here_.options(), &here_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    here_flow_ = *opened;
  }

  AwaitableFlow here_{kWindow}, there_{kWindow};
  Flow here_flow_, there_flow_;
};

TEST_F(AwaitableFlowTest, SenderAndReaderThatWait_MoveEverythingInOrder) {
  Connect();
  absl::Status status;
  std::vector<std::string> heard;
  const Task sender = SendNumbers(&here_, here_flow_, 100, &status);  // before the flow is open
  EXPECT_FALSE(sender.done());
  const Task reader = Read(&there_, &heard);
  Settle();
  EXPECT_TRUE(sender.done());
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(heard.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(heard[i], std::to_string(i));
  EXPECT_FALSE(reader.done());
  here_flow_.Close();
  Settle();
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(there_.why().ok());
}

TEST_F(AwaitableFlowTest, NobodyReads_SenderWaitsAtTheWindowAndWhatCameIsKept) {
  Connect();
  absl::Status status;
  const Task sender = SendNumbers(&here_, here_flow_, 10, &status);
  Settle();
  EXPECT_FALSE(sender.done());
  EXPECT_EQ(here_flow_.totals().sent, kWindow);
  std::vector<std::string> heard;
  const Task reader = Read(&there_, &heard);
  Settle();
  EXPECT_TRUE(sender.done());
  EXPECT_EQ(heard.size(), 10u);
  here_flow_.Close();
  Settle();
}

TEST_F(AwaitableFlowTest, MessageIsThereUntilTheNextIsAskedFor) {
  Connect();
  absl::Status status;
  const Task sender = SendNumbers(&here_, here_flow_, 9, &status);
  const auto read_four = [](AwaitableFlow* end, std::string* all) -> Task {
    for (int i = 0; i < 4; ++i) {
      const auto message = co_await end->Next();
      *all += TextOf(*message);
    }
  };
  std::string all;
  const Task reader = read_four(&there_, &all);
  Settle();
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(all, "0123");
  EXPECT_FALSE(sender.done());
  EXPECT_LT(here_flow_.totals().sent, 4 + kWindow);  // the fourth is still held
  there_flow_.Close();
  Settle();
  EXPECT_TRUE(sender.done());
}

TEST_F(AwaitableFlowTest, FlowThatIsClosed_EndsBothWaits) {
  Connect();
  Settle();
  absl::Status status;
  std::vector<std::string> heard;
  const Task sender = SendNumbers(&here_, here_flow_, 10, &status);
  const Task reader = Read(&here_, &heard);
  Settle();
  EXPECT_FALSE(sender.done());
  there_flow_.Close(absl::AbortedError("enough"));
  Settle();
  EXPECT_TRUE(sender.done());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(here_.why().code(), absl::StatusCode::kAborted);
}

TEST_F(AwaitableFlowTest, PeerThatIsGone_EndsBothWaits) {
  Connect();
  Settle();
  absl::Status status;
  std::vector<std::string> heard;
  const Task sender = SendNumbers(&here_, here_flow_, 10, &status);
  const Task reader = Read(&here_, &heard);
  Settle();
  b_.reset();
  Settle();
  EXPECT_TRUE(sender.done());
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(here_.why().ok());
}

TEST_F(AwaitableFlowTest, MessageThatIsTooLong_IsRefusedAtOnce) {
  Connect();
  Settle();
  const auto send = [](AwaitableFlow* end, Flow flow, absl::Status* status) -> Task {
    const std::string text(flow.limit_bytes() + 1, 'x');
    *status = co_await end->Send(flow, BytesOf(text));
  };
  absl::Status status;
  const Task sender = send(&here_, here_flow_, &status);
  EXPECT_TRUE(sender.done());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  here_flow_.Close();
  Settle();
}

// As one writes who fills the buffer in place.
TEST_F(AwaitableFlowTest, Writable_FollowsARefusedReserve) {
  Connect();
  const auto write = [](AwaitableFlow* end, Flow flow, int count, bool* closed) -> Task {
    for (int i = 0; i < count;) {
      const auto buffer = flow.Reserve(1);
      if (!buffer.ok()) {
        if (!co_await end->Writable()) {
          *closed = true;
          co_return;
        }
        continue;
      }
      *buffer->data = static_cast<std::byte>('a' + i++);
      flow.Commit(*buffer, 1);
    }
  };
  bool closed = false;
  const Task writer = write(&here_, here_flow_, 9, &closed);
  std::vector<std::string> heard;
  {
    const Task reader = Read(&there_, &heard);
    Settle();
  }
  EXPECT_TRUE(writer.done());
  ASSERT_EQ(heard.size(), 9u);
  EXPECT_EQ(heard.back(), "i");
  const Task stuck = write(&here_, here_flow_, 9, &closed);
  Settle();
  EXPECT_FALSE(stuck.done());
  there_flow_.Close();
  Settle();
  EXPECT_TRUE(stuck.done());
  EXPECT_TRUE(closed);
}

TEST_F(AwaitableFlowTest, CoroutinesDestroyedWhileTheyWait_AreForgotten) {
  Connect();
  Settle();
  absl::Status status;
  std::vector<std::string> heard;
  {
    const Task sender = SendNumbers(&here_, here_flow_, 10, &status);
    const Task reader = Read(&here_, &heard);
    Settle();
    EXPECT_FALSE(sender.done());
  }
  {
    const Task reader = Read(&there_, &heard);
    Settle();  // there is room now, and nobody who wants it
  }
  EXPECT_EQ(heard.size(), kWindow);
  const Task sender = SendNumbers(&here_, here_flow_, 2, &status);
  EXPECT_TRUE(sender.done());
  here_flow_.Close();
  Settle();
}

// The end is a part of the frame of the coroutine that reads it, and goes with it.
TEST_F(AwaitableFlowTest, ReaderThatOwnsItsEnd_MayReturnWhenItIsClosed) {
  Start();
  const auto read = [](flow::FlowEngine* engine, uint64_t* heard) -> Task {
    AwaitableFlow end(kWindow);
    const auto flow = engine->Open("b", 1, "end", end.options(), &end);
    EXPECT_TRUE(flow.ok()) << flow.status();
    while (co_await end.Next()) ++*heard;
  };
  on_offer_ = [](flow::Ear* ear) {
    ear->on_writable = [ear] { ear->SendAll("m", 3); };
    ear->SendAll("m", 3);
  };
  uint64_t heard = 0;
  const Task reader = read(&a_->engine, &heard);
  Settle();
  EXPECT_GT(heard, 0u);
  ears_[0]->flow.Close();
  Settle();
  EXPECT_TRUE(reader.done());
}

TEST_F(AwaitableFlowTest, OwnClose_EndsBothWaits) {
  Connect();
  Settle();
  absl::Status status;
  std::vector<std::string> heard;
  const Task sender = SendNumbers(&here_, here_flow_, 10, &status);
  const Task reader = Read(&here_, &heard);
  Settle();
  EXPECT_FALSE(sender.done() || reader.done());
  here_flow_.Close();
  Settle();
  EXPECT_TRUE(sender.done());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(reader.done());
  EXPECT_TRUE(here_.why().ok());
}

TEST_F(AwaitableFlowTest, WriterMayDestroyTheEndWhenItIsClosed) {
  accept_options_ = {.window = 1, .manual_consume = true};
  Start();
  alignas(AwaitableFlow) std::byte storage[sizeof(AwaitableFlow)];
  auto* const end = new (storage) AwaitableFlow(kWindow);
  const auto flow = a_->engine.Open("b", 1, "end", end->options(), end);
  ASSERT_TRUE(flow.ok()) << flow.status();
  std::vector<std::string> heard;
  std::optional<Task> reader(Read(end, &heard));
  const auto write = [](AwaitableFlow* end, Flow flow, std::optional<Task>* reader) -> Task {
    while ((co_await end->Send(flow, BytesOf("m"))).ok()) {
    }
    reader->reset();
    end->~AwaitableFlow();
    std::memset(static_cast<void*>(end), 0xff, sizeof(*end));  // a later use of it fails
  };
  const Task writer = write(end, *flow, &reader);
  Settle();
  EXPECT_FALSE(writer.done());
  ears_.at(0)->flow.Close();
  Settle();
  EXPECT_TRUE(writer.done());
}

TEST_F(AwaitableFlowTest, ReceivedMessagesCanBeTakenAfterTheEngineHasEnded) {
  Connect();
  absl::Status status;
  const Task sender = SendNumbers(&here_, here_flow_, 3, &status);
  Settle();
  EXPECT_TRUE(sender.done());
  b_->engine.Close();
  b_.reset();
  std::vector<std::string> heard;
  const Task reader = Read(&there_, &heard);
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(heard.size(), 3u);
  const Task late = SendNumbers(&there_, there_flow_, 1, &status);
  EXPECT_TRUE(late.done());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  Settle();
}

// The inbox gave no credit for a flow after the first: its sender stopped when the window was full.
TEST_F(AwaitableFlowTest, InboxThatIsUsedAgainGivesCreditForTheNextFlow) {
  Start();
  FlowInbox inbox(2);
  ASSERT_TRUE(
      b_->engine.Accept("inbox", inbox.options(), [&](Flow, const Offer&) { return &inbox; }).ok());
  for (int round = 0; round < 2; ++round) {
    AwaitableFlow end(kWindow);
    auto flow = a_->engine.Open("b", 1, "inbox", end.options(), &end);
    ASSERT_TRUE(flow.ok()) << flow.status();
    absl::Status status;
    const Task sender = SendNumbers(&end, *flow, 5, &status);
    int taken = 0;
    for (int pass = 0; pass < 5; ++pass) {
      Settle();
      for (; inbox.ready(); ++taken) inbox.Pop();
    }
    EXPECT_EQ(taken, 5) << round;
    flow->Close();
    Settle();
    EXPECT_TRUE(inbox.closed());
  }
}

}  // namespace awaitable_flow_test
}  // namespace sluice

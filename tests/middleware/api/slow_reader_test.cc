// SPDX-License-Identifier: Apache-2.0
//
// Readers that do not read, while much else goes on: the process does not grow. Streams both ways and unary calls, in
// one process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "middleware/api/in_process.h"
#include "middleware/api/signal.h"
#include "tests/middleware/api/chat.sluice.h"

namespace sluice {
namespace {

using tests::chat::ChatClient;
using tests::chat::ChatServiceBase;
using tests::chat::Line;

// A sanitizer keeps freed memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMemoryIsKept = true;
#else
constexpr bool kMemoryIsKept = false;
#endif

int64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long size = 0;
  long resident = 0;
  const int read = std::fscanf(file, "%ld %ld", &size, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : -1;
}

// Tail writes without end. Sum reads nothing, and returns when its stop is requested.
class Chat final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext&, const Line& request, Line* reply) override {
    *reply = request;
    return absl::OkStatus();
  }
  Task<absl::Status> Tail(ServerContext&, const Line& request, ServerWriter<Line> writer) override {
    bool read = true;
    while (read) read = co_await writer.Write(request);
    co_return absl::OkStatus();
  }
  Task<absl::Status> Sum(ServerContext& context, ServerReader<Line>, Line*) override {
    const std::stop_token stop = context.stop_token();
    while (!stop.stop_requested()) co_await never_.Wait(stop);
    co_return absl::OkStatus();
  }

 private:
  Signal never_;
};

TEST(SlowReaderTest, ResidentSetIsFlat) {
  if (kMemoryIsKept) GTEST_SKIP() << "a sanitizer keeps what is freed";
  Chat chat;
  auto world = InProcess::Start({&chat});
  ASSERT_TRUE(world.ok()) << world.status();
  auto channel = (*world)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();
  ChatClient client(*channel);
  Line line;
  line.set_text(std::string(4000, 'x'));

  CallContext context(absl::Hours(1));
  auto unread = client.Tail(context, line);
  Line reply;
  CallContext other(absl::Hours(1));
  auto unheard = client.Sum(other, &reply);
  int written = 0;
  // Until its window is full; what is refused then waits.
  for (int i = 0; i < 16; ++i) written += unheard.Write(line) ? 1 : 0;
  EXPECT_EQ(written, 16);
  std::atomic<bool> seventeenth_done{false};
  unheard.StartWrite(line, [&](bool) { seventeenth_done = true; });

  // Many at a time, so that a busy machine switches threads now and then only.
  constexpr int kBatch = 50;
  Line replies[kBatch];
  const auto say = [&](int batches) {
    CallContext each(absl::Hours(1));
    for (int i = 0; i < batches; ++i) {
      std::atomic<int> left{kBatch};
      for (Line& one : replies) {
        ASSERT_TRUE(client
                        .StartSay(each, line, &one,
                                  [&left](const absl::Status& status) {
                                    EXPECT_TRUE(status.ok()) << status;
                                    --left;
                                  })
                        .ok());
      }
      ASSERT_TRUE((*channel)->Drive([&left] { return left == 0; }, absl::Seconds(60)));
    }
  };
  say(20);
  const int64_t before = ResidentBytes();
  ASSERT_GT(before, 0);
  say(600);  // 240 MB of messages pass by
  const int64_t grown = ResidentBytes() - before;
  EXPECT_LT(grown, 2 << 20) << "while 240 MB passed by";
  EXPECT_FALSE(seventeenth_done);
  unread.Cancel();
  unheard.Cancel();
  EXPECT_FALSE(unread.Finish().ok());
  EXPECT_FALSE(unheard.Finish().ok());
  EXPECT_TRUE(seventeenth_done) << "the end of the call tells it";
}

}  // namespace
}  // namespace sluice

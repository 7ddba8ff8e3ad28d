// SPDX-License-Identifier: Apache-2.0
//
// call_lab: many calls over the system's own libibverbs and librdmacm, each of which is counted at both ends.
//
// usage: call_lab serve --listen HOST:PORT --device D --book FILE --calls N
//        call_lab connect --server HOST:PORT --device D --calls N [--outstanding K] [--timeout T]
//        call_lab call  --server HOST:PORT --device D --calls N [--outstanding K] [--bytes B] [--timeout T] [--during T] [--wait]
// Call number I carries I and B bytes that follow from it; the reply has the same. The server counts in the book, one byte for each number,
// how often it has run each call. A server that is started again goes on with the book of one that was killed. By SIGTERM it drains, and
// prints words of the form name=value: executed, and repeated (run more than once). The client keeps K calls in flight, and prints at the end:
// started, ended, right, wrong (another answer), unavailable and failed (errors), twice (calls that ended twice). With --wait a call waits for
// a connection. Without, calls fail while there is none. With --during no call starts after that time. `connect` makes N channels of one runtime,
// each with a connection of its own and one call, and keeps the last K of them. It prints connected, right and wrong.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/runtime.h"
#include "middleware/api/server.h"

ABSL_FLAG(std::string, listen, "", "where the server listens");
ABSL_FLAG(std::string, server, "", "the server's address");
ABSL_FLAG(std::string, device, "", "the RDMA device");
ABSL_FLAG(std::string, book, "", "file of the server's counts, made if it is missing");
ABSL_FLAG(uint32_t, calls, 1000, "number of calls");
ABSL_FLAG(uint32_t, outstanding, 8, "calls in flight");
ABSL_FLAG(uint32_t, bytes, 64, "bytes of a request, at least 8");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(60),
          "of a call; an attempt to connect has half of it");
ABSL_FLAG(absl::Duration, during, absl::InfiniteDuration(), "no call starts after this time");
ABSL_FLAG(bool, wait, false, "calls wait for a connection");

namespace sluice {
namespace {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

// The bytes of call `number`.
std::string PayloadOf(uint64_t number, size_t bytes) {
  std::string payload(std::max<size_t>(bytes, sizeof(number)), '\0');
  std::memcpy(payload.data(), &number, sizeof(number));
  for (size_t i = sizeof(number); i < payload.size(); ++i) {
    payload[i] = static_cast<char>(number * 31 + i * 7);
  }
  return payload;
}

// How often each call was run: a byte for each, in a file, so that it survives the process.
class Book {
 public:
  static absl::StatusOr<Book> Open(const std::string& path, uint32_t calls) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return absl::ErrnoToStatus(errno, path);
    void* memory = MAP_FAILED;
    if (ftruncate(file, calls) == 0) {
      memory = mmap(nullptr, calls, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    const int error = errno;
    close(file);
    if (memory == MAP_FAILED) return absl::ErrnoToStatus(error, path);
    return Book(static_cast<uint8_t*>(memory), calls);
  }
  // Returns false if there is no such call.
  bool Note(uint64_t number) {
    if (number >= calls_) return false;
    std::atomic_ref<uint8_t>(counts_[number]).fetch_add(1);
    return true;
  }
  void Print() const {
    uint32_t executed = 0, repeated = 0;
    for (uint32_t i = 0; i < calls_; ++i) {
      executed += counts_[i] != 0;
      repeated += counts_[i] > 1;
    }
    std::printf("executed=%u repeated=%u\n", executed, repeated);
  }

 private:
  Book(uint8_t* counts, uint32_t calls) : counts_(counts), calls_(calls) {}

  uint8_t* counts_;  // stays mapped until the process ends
  uint32_t calls_;
};

class CountingEcho final : public EchoServiceBase {
 public:
  explicit CountingEcho(Book* book) : book_(book) {}
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    uint64_t number = UINT64_MAX;
    if (request.payload().size() >= sizeof(number)) {
      std::memcpy(&number, request.payload().data(), sizeof(number));
    }
    if (!book_->Note(number)) return absl::InvalidArgumentError("no such call");
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }

 private:
  Book* const book_;
};

absl::Status Serve() {
  auto book = Book::Open(absl::GetFlag(FLAGS_book), absl::GetFlag(FLAGS_calls));
  if (!book.ok()) return book.status();
  ServerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  CountingEcho echo(&*book);
  auto server = Server::Create(options);
  if (!server.ok()) return server.status();
  if (absl::Status status = (*server)->Register(&echo); !status.ok()) return status;
  if (auto port = (*server)->Listen(absl::GetFlag(FLAGS_listen)); !port.ok()) return port.status();
  std::printf("listening\n");
  std::fflush(stdout);
  absl::Status ended = (*server)->Wait();
  book->Print();
  return ended;
}

// Slots whose call has ended, for the thread that starts the next.
class Ended {
 public:
  void Put(uint32_t slot) {
    {
      const std::lock_guard lock(mutex_);
      slots_.push_back(slot);
    }
    count_.release();
  }
  uint32_t Take() {
    count_.acquire();
    const std::lock_guard lock(mutex_);
    const uint32_t slot = slots_.front();
    slots_.pop_front();
    return slot;
  }

 private:
  std::mutex mutex_;
  std::deque<uint32_t> slots_;
  std::counting_semaphore<> count_{0};
};

struct Slot {
  std::optional<CallContext> context;
  SayRequest request;
  SayReply reply;
  uint64_t number = 0;
  absl::Status status;
};

absl::Status Call() {
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  ChannelOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  options.connect_timeout = timeout / 2;  // an attempt ends before a call that waits for it
  auto channel = Channel::Connect(absl::GetFlag(FLAGS_server), options);
  if (!channel.ok()) return channel.status();
  EchoClient client(*channel);
  const uint32_t calls = absl::GetFlag(FLAGS_calls);
  std::vector<std::atomic<uint8_t>> ends(calls);
  std::vector<Slot> slots(std::clamp(absl::GetFlag(FLAGS_outstanding), 1u, calls));
  Ended ended;
  uint32_t right = 0, wrong = 0, unavailable = 0, failed = 0;
  uint64_t next = 0;
  const auto start = [&](uint32_t index) {
    Slot& slot = slots[index];
    slot.number = next++;
    slot.request.set_payload(PayloadOf(slot.number, absl::GetFlag(FLAGS_bytes)));
    slot.context.emplace(timeout);
    slot.context->set_wait_for_ready(absl::GetFlag(FLAGS_wait));
    const absl::Status started = client.StartSay(*slot.context, slot.request, &slot.reply,
                                                 [&, index](const absl::Status& status) {
                                                   ++ends[slots[index].number];
                                                   slots[index].status = status;
                                                   ended.Put(index);
                                                 });
    if (started.ok()) return;
    ++ends[slot.number];
    slot.status = started;
    ended.Put(index);
  };
  const absl::Time last = absl::Now() + absl::GetFlag(FLAGS_during);
  for (uint32_t i = 0; i < slots.size(); ++i) start(i);
  absl::Status first;
  for (uint64_t count = 0; count < next; ++count) {
    const uint32_t index = ended.Take();
    const Slot& slot = slots[index];
    if (slot.status.ok()) {
      ++(slot.reply.payload() == slot.request.payload() ? right : wrong);
    } else {
      ++(absl::IsUnavailable(slot.status) ? unavailable : failed);
      if (first.ok() || (absl::IsUnavailable(first) && !absl::IsUnavailable(slot.status))) {
        first = slot.status;
      }
    }
    if (next < calls && absl::Now() < last) start(index);
  }
  channel->reset();
  uint32_t all = 0, twice = 0;
  for (const auto& count : ends) {
    all += count != 0;
    twice += count > 1;
  }
  std::printf("started=%u ended=%u right=%u wrong=%u unavailable=%u failed=%u twice=%u\n",
              static_cast<unsigned>(next), all, right, wrong, unavailable, failed, twice);
  if (!first.ok()) std::printf("the first error: %s\n", std::string(first.message()).c_str());
  return absl::OkStatus();
}

absl::Status Connect() {
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  RuntimeOptions shared;
  shared.device = absl::GetFlag(FLAGS_device);
  auto runtime = Runtime::Create(shared);
  if (!runtime.ok()) return runtime.status();
  ChannelOptions options;
  options.runtime = *runtime;
  options.share_connections = false;
  options.connect_timeout = timeout;
  std::deque<std::shared_ptr<Channel>> kept;
  uint32_t right = 0, wrong = 0;
  const uint32_t calls = absl::GetFlag(FLAGS_calls);
  for (uint32_t number = 0; number < calls; ++number) {
    auto channel = Channel::Connect(absl::GetFlag(FLAGS_server), options);
    if (!channel.ok()) return channel.status();
    CallContext context(timeout);
    SayRequest request;
    SayReply reply;
    request.set_payload(PayloadOf(number, absl::GetFlag(FLAGS_bytes)));
    if (absl::Status status = EchoClient(*channel).Say(context, request, &reply); !status.ok()) {
      return status;
    }
    ++(reply.payload() == request.payload() ? right : wrong);
    kept.push_back(std::move(*channel));
    if (kept.size() > absl::GetFlag(FLAGS_outstanding)) kept.pop_front();
  }
  std::printf("connected=%u right=%u wrong=%u\n", calls, right, wrong);
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const std::string role = words.size() == 2 ? words[1] : "";
  absl::Status status =
      absl::InvalidArgumentError("usage: call_lab serve|call|connect, see the source");
  if (role == "serve") status = sluice::Serve();
  if (role == "call") status = sluice::Call();
  if (role == "connect") status = sluice::Connect();
  if (status.ok()) return 0;
  std::fprintf(stderr, "call_lab: %s\n", std::string(status.message()).c_str());
  return 1;
}

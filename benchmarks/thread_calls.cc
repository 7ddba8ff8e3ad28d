// SPDX-License-Identifier: Apache-2.0
//
// Calls of application threads, none of which is in Drive(), beside gRPC over a Unix socket on the same work: a 64-byte echo, one
// channel for all threads, one server process. Each measurement is a client process of its own; those of the two libraries alternate.
//   thread_calls [REPETITIONS [SECONDS]]      default 5 of 1 s; prints a table of medians
//   thread_calls serve LIBRARY                a server; prints its address. LIBRARY: sluice, grpc
//   thread_calls client LIBRARY ADDRESS STYLE THREADS OUTSTANDING SECONDS CPU
//     prints calls a second, p50 and p99 in µs, and the least share of a thread of what would be fair.
//     STYLE: sync, a thread waits for each of its calls; callback, it keeps OUTSTANDING calls in flight and sleeps until one ends;
//     coroutine, it runs OUTSTANDING coroutines, which return to it with RunOn() after each call (gRPC: as callback)
//     CPU: that the client process is pinned to; -1: none
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "benchmarks/die.h"
#include "benchmarks/peers/grpc_echo_server.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/client_call.h"
#include "middleware/api/executor.h"
#include "middleware/api/run_on.h"
#include "middleware/api/server.h"
#include "middleware/api/task.h"
#include "tools/child_process.h"

namespace sluice {
namespace {

using benchmarks::Die;
using benchmarks::OrDie;

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr size_t kPayload = 64;
constexpr size_t kMostTimes = 1 << 20;  // of a thread

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// One call in flight of one thread. The library's callback opens `ended`.
template <typename Library>
struct Slot {
  typename Library::Call call;
  std::atomic<bool> ended{true};
  int64_t begin_ns = 0;
};

// The coroutines of one thread that are ready to run.
class ThreadQueue final : public Executor {
 public:
  void Run(absl::AnyInvocable<void() &&> work) override {
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(work));
    }
    count_.release();
  }
  // Waits for one, and runs it.
  void RunNext() {
    count_.acquire();
    std::unique_lock lock(mutex_);
    absl::AnyInvocable<void()&&> work = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    std::move(work)();
  }

 private:
  std::mutex mutex_;
  std::deque<absl::AnyInvocable<void() &&>> ready_;
  std::counting_semaphore<> count_{0};
};

// Notes a call that began at the first time, and has ended at the second. Returns whether there shall be more.
using Note = std::function<bool(int64_t from_ns, int64_t now_ns)>;

class SluiceLibrary {
 public:
  static constexpr bool kCoroutines = true;
  struct Call {
    std::optional<CallContext> context;
    SayReply reply;
  };

  explicit SluiceLibrary(const std::string& address)
      : client_(OrDie(Channel::Connect(address, {}))) {
    request_.set_payload(std::string(kPayload, 'x'));
  }
  void Sync(Call* call) {
    call->context.emplace(kPatience);
    const auto reply = client_.Say(*call->context, request_);
    if (!reply.ok()) Die(std::string(reply.status().message()));
  }
  template <typename Done>
  void Start(Call* call, Done done) {
    call->context.emplace(kPatience);
    const absl::Status started = client_.StartSay(*call->context, request_, &call->reply,
                                                  [done](const absl::Status& status) {
                                                    if (!status.ok())
                                                      Die(std::string(status.message()));
                                                    done();
                                                  });
    if (!started.ok()) Die(std::string(started.message()));
  }
  Task<absl::Status> Repeat(ThreadQueue* thread, const Note* note) {
    for (int64_t from_ns = NowNs(), now_ns;; from_ns = now_ns) {
      CallContext context(kPatience);
      const absl::StatusOr<SayReply> reply = co_await client_.CoSay(context, request_);
      if (!reply.ok()) Die(std::string(reply.status().message()));
      co_await RunOn(thread);
      now_ns = NowNs();
      if (!(*note)(from_ns, now_ns)) co_return absl::OkStatus();
    }
  }

 private:
  EchoClient client_;
  SayRequest request_;
};

// Generic calls: without protobuf.
class GrpcLibrary {
 public:
  static constexpr bool kCoroutines = false;
  struct Call {
    std::optional<grpc::ClientContext> context;
    grpc::ByteBuffer reply;
  };

  explicit GrpcLibrary(const std::string& address)
      : stub_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    const grpc::Slice payload(std::string(kPayload, 'x'));
    request_ = grpc::ByteBuffer(&payload, 1);
  }
  void Sync(Call* call) {
    call->context.emplace();
    grpc::CompletionQueue queue;
    grpc::Status status;
    const auto reader = stub_.PrepareUnaryCall(&*call->context, kMethod, request_, &queue);
    reader->StartCall();
    reader->Finish(&call->reply, &status, nullptr);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    if (!status.ok()) Die(status.error_message());
  }
  template <typename Done>
  void Start(Call* call, Done done) {
    call->context.emplace();
    stub_.UnaryCall(&*call->context, kMethod, grpc::StubOptions(), &request_, &call->reply,
                    [done](const grpc::Status& status) {
                      if (!status.ok()) Die(status.error_message());
                      done();
                    });
  }

 private:
  static constexpr char kMethod[] = "/echo/Say";
  grpc::GenericStub stub_;
  grpc::ByteBuffer request_;
};

struct Work {
  bool sync = false;
  bool coroutines = false;
  int threads = 1;
  int outstanding = 1;
  double seconds = 1;
};

struct Figures {
  double per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
  double least_share = 0;
};

// What one thread does between `begin_ns` and `end_ns`; it warms up before.
template <typename Library>
std::vector<int64_t> RunThread(Library* library, const Work& work, int64_t begin_ns, int64_t end_ns,
                               uint64_t* calls) {
  std::vector<int64_t> times_ns;
  times_ns.reserve(kMostTimes);
  const auto note = [&](int64_t from_ns, int64_t now_ns) {
    if (now_ns < begin_ns || now_ns >= end_ns) return;
    ++*calls;
    if (times_ns.size() < kMostTimes) times_ns.push_back(now_ns - from_ns);
  };
  if (work.sync) {
    typename Library::Call call;
    for (int64_t from_ns = NowNs(); from_ns < end_ns;) {
      library->Sync(&call);
      const int64_t now_ns = NowNs();
      note(from_ns, now_ns);
      from_ns = now_ns;
    }
    return times_ns;
  }
  if constexpr (Library::kCoroutines) {
    if (work.coroutines) {
      ThreadQueue queue;
      int running = work.outstanding;
      const Note one = [&](int64_t from_ns, int64_t now_ns) {
        note(from_ns, now_ns);
        return now_ns < end_ns;
      };
      for (int i = 0; i < work.outstanding; ++i) {
        Spawn(library->Repeat(&queue, &one), [&running](const absl::Status&) { --running; });
      }
      while (running > 0) queue.RunNext();
      return times_ns;
    }
  }
  std::vector<Slot<Library>> slots(work.outstanding);
  std::counting_semaphore<> ended(0);
  const auto start = [&](Slot<Library>* slot) {
    slot->begin_ns = NowNs();
    slot->ended = false;
    library->Start(&slot->call, [slot, &ended] {
      slot->ended = true;
      ended.release();
    });
  };
  for (auto& slot : slots) start(&slot);
  int open = work.outstanding;
  for (size_t next = 0; open > 0;) {
    ended.acquire();
    while (!slots[next].ended || slots[next].begin_ns == 0) next = (next + 1) % slots.size();
    const int64_t now_ns = NowNs();
    note(slots[next].begin_ns, now_ns);
    slots[next].begin_ns = 0;
    if (now_ns < end_ns) {
      start(&slots[next]);
    } else {
      --open;
    }
  }
  return times_ns;
}

template <typename Library>
Figures Run(const std::string& address, const Work& work) {
  Library library(address);
  {
    typename Library::Call first;
    library.Sync(&first);
  }
  const auto time_ns = static_cast<int64_t>(work.seconds * 1e9);
  const int64_t begin_ns = NowNs() + time_ns / 4;
  std::vector<uint64_t> calls(work.threads);
  std::vector<std::vector<int64_t>> times_ns(work.threads);
  std::vector<std::thread> threads;
  for (int i = 0; i < work.threads; ++i) {
    threads.emplace_back([&, i] {
      times_ns[i] = RunThread(&library, work, begin_ns, begin_ns + time_ns, &calls[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int64_t> all;
  for (const auto& each : times_ns) all.insert(all.end(), each.begin(), each.end());
  if (all.empty()) Die("no call ended in time");
  std::sort(all.begin(), all.end());
  uint64_t sum = 0;
  for (const uint64_t each : calls) sum += each;
  const auto least = static_cast<double>(*std::min_element(calls.begin(), calls.end()));
  return {.per_second = static_cast<double>(sum) / work.seconds,
          .p50_us = static_cast<double>(all[all.size() / 2]) / 1e3,
          .p99_us = static_cast<double>(all[all.size() * 99 / 100]) / 1e3,
          .least_share = least * work.threads / static_cast<double>(sum)};
}

int Client(char** arguments) {
  const std::string library = arguments[0], address = arguments[1];
  const std::string style = arguments[2];
  const Work work{.sync = style == "sync",
                  .coroutines = style == "coroutine",
                  .threads = std::atoi(arguments[3]),
                  .outstanding = std::atoi(arguments[4]),
                  .seconds = std::atof(arguments[5])};
  if (const int cpu = std::atoi(arguments[6]); cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) Die("there is no such CPU");
  }
  const Figures figures =
      library == "grpc" ? Run<GrpcLibrary>(address, work) : Run<SluiceLibrary>(address, work);
  std::printf("%.0f %.3f %.3f %.3f\n", figures.per_second, figures.p50_us, figures.p99_us,
              figures.least_share);
  std::fflush(stdout);
  std::_Exit(0);
}

int Serve(const std::string& library) {
  if (library == "grpc") {
    const std::string address = "unix-abstract:thread_calls." + std::to_string(getpid());
    GrpcEcho echo;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&echo);
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) Die("the gRPC server does not listen");
    std::printf("listening on %s\n", address.c_str());
    std::fflush(stdout);
    for (;;) pause();
  }
  examples::echo::EchoService echo;
  const auto server = OrDie(Server::Create({}));
  if (const absl::Status status = server->Register(&echo); !status.ok()) {
    Die(std::string(status.message()));
  }
  const uint16_t port = OrDie(server->Listen("127.0.0.1:0"));
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  for (;;) pause();
}

Figures MedianOf(const std::vector<Figures>& runs) {
  const auto median = [&runs](double Figures::*member) {
    std::vector<double> values;
    for (const Figures& each : runs) values.push_back(each.*member);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  return {median(&Figures::per_second), median(&Figures::p50_us), median(&Figures::p99_us),
          median(&Figures::least_share)};
}

struct Row {
  const char* style;
  int threads;
  int outstanding;
  int cpu;
};
constexpr Row kRows[] = {
    {"sync", 1, 1, -1},      {"sync", 4, 1, -1},       {"sync", 8, 1, -1},
    {"callback", 1, 1, -1},  {"callback", 1, 8, -1},   {"callback", 1, 32, -1},
    {"callback", 4, 1, -1},  {"callback", 4, 8, -1},   {"callback", 4, 32, -1},
    {"callback", 8, 1, -1},  {"callback", 8, 8, -1},   {"callback", 8, 32, -1},
    {"callback", 1, 32, 0},  {"coroutine", 1, 1, -1},  {"coroutine", 1, 8, -1},
    {"coroutine", 4, 8, -1}, {"coroutine", 8, 32, -1},
};
constexpr const char* kLibraries[] = {"sluice", "grpc"};

int Measure(const std::string& self, int repetitions, const std::string& seconds) {
  std::unique_ptr<tools::ChildProcess> servers[2];
  std::string addresses[2];
  for (int i = 0; i < 2; ++i) {
    servers[i] = OrDie(tools::ChildProcess::Start({self, "serve", kLibraries[i]}));
    const std::string line = OrDie(servers[i]->ReadLine(kPatience));
    addresses[i] = line.substr(line.rfind(' ') + 1);
  }
  std::vector<Figures> figures[std::size(kRows)][2];
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t row = 0; row < std::size(kRows); ++row) {
      for (int i = 0; i < 2; ++i) {
        const Row& what = kRows[row];
        auto client = OrDie(tools::ChildProcess::Start(
            {self, "client", kLibraries[i], addresses[i], what.style, std::to_string(what.threads),
             std::to_string(what.outstanding), seconds, std::to_string(what.cpu)}));
        const std::string line = OrDie(client->ReadLine(kPatience));
        Figures one;
        if (std::sscanf(line.c_str(), "%lf %lf %lf %lf", &one.per_second, &one.p50_us, &one.p99_us,
                        &one.least_share) != 4) {
          Die("a client printed: " + line);
        }
        figures[row][i].push_back(one);
      }
    }
  }
  std::printf(
      "| style | threads × outstanding | Sluice, calls/s | p50, µs | p99, µs | least share | gRPC, "
      "calls/s "
      "| p50, µs | p99, µs | least share | ratio |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (size_t row = 0; row < std::size(kRows); ++row) {
    const Figures a = MedianOf(figures[row][0]), b = MedianOf(figures[row][1]);
    const Row& what = kRows[row];
    std::printf(
        "| %s%s | %d × %d | %.0f | %.1f | %.1f | %.2f | %.0f | %.1f | %.1f | %.2f | %.1f |\n",
        what.style, what.cpu < 0 ? "" : ", one CPU", what.threads, what.outstanding, a.per_second,
        a.p50_us, a.p99_us, a.least_share, b.per_second, b.p50_us, b.p99_us, b.least_share,
        a.per_second / b.per_second);
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve" && argc == 3) return sluice::Serve(argv[2]);
  if (mode == "client" && argc == 9) return sluice::Client(argv + 2);
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 5;
  if (argc > 3 || repetitions < 1) sluice::Die("usage: thread_calls [REPETITIONS [SECONDS]]");
  return sluice::Measure(argv[0], repetitions, argc > 2 ? argv[2] : "1");
}

// SPDX-License-Identifier: Apache-2.0
//
// What the SRQ and CQE rings of transport/softdc/shm cost by themselves, on two cores:
//
//   raw     one 64-byte slot each way, sequence number in its last 8 bytes: this machine's floor
//   rings   64-byte messages, a SEND without the verbs: claim a WQE, copy, publish a CQE, look at
//           the armed word; poll, read the message, complete and repost the WQE
//   rate    rings with 32 messages outstanding, doorbells of 1, 4, 8 and 16 messages
//
// Usage: shm_rings_pingpong [cpu cpu [repetitions]]     (defaults: 0 1 15)
//
// Latencies are medians over batches of 10 round trips (the clock's grid is coarser than a tenth of
// one), rates over stretches of 800 echoes, so that being scheduled out now and then doesn't count;
// then the median over repetitions, interleaved raw, rings, rate so that all see the same machine.
// A repetition whose raw is above 1.5 times the best one ran on a disturbed machine; how many did
// is printed, none is dropped.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transport/softdc/shm/armed_word.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/cqe_ring.h"
#include "transport/softdc/shm/srq_claimer.h"
#include "transport/softdc/shm/srq_owner.h"

namespace sluice::softdc::shm {
namespace {

constexpr uint32_t kDepth = 256;
constexpr uint32_t kRefill = 16;  // WQEs posted per Ring()
constexpr uint32_t kWindow = 32;
constexpr int kTripsPerBatch = 10;
constexpr int kBatches = 10'000;
constexpr uint64_t kRateMessages = 400'000;
constexpr uint64_t kChunk = 800;  // echoes per sample of the rate
constexpr uint32_t kDoorbells[] = {1, 4, 8, 16};

struct alignas(64) Message {
  std::array<uint64_t, 8> words;
};

void* Map(size_t size_bytes) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    std::exit(1);
  }
  return memory;
}

// One process's receive side, in memory that both have mapped.
struct Inbox {
  Inbox()
      : srq_area(Map(SrqOwner::Bytes(kDepth, 1))),
        ring_area(Map(CqeConsumer::Bytes(kDepth))),
        line(Map(ClaimJournal::Bytes())),
        armed_area(Map(ArmedWord::Bytes())),
        buffers(static_cast<Message*>(Map(kDepth * sizeof(Message)))),
        srq(*SrqOwner::Create(srq_area, SrqOwner::Bytes(kDepth, 1), 1, kDepth, 1)),
        ring(*CqeConsumer::Create(ring_area, CqeConsumer::Bytes(kDepth), kDepth)) {
    ClaimJournal::Create(line, ClaimJournal::Bytes());
    ArmedWord::Create(armed_area, ArmedWord::Bytes());
    for (uint32_t i = 0; i < kDepth; ++i) Post(i);
    srq.Ring();
  }
  void Post(uint64_t buffer) {
    const Sge sge{.offset = buffer * sizeof(Message), .key = 1, .length = sizeof(Message)};
    srq.Post({&sge, 1}, buffer);
  }

  // Takes up to `most` messages; returns how many. Adds up what they hold, so that each line is
  // really read.
  uint32_t Receive(uint32_t most) {
    Cqe cqe;
    uint32_t count = 0;
    while (count < most && ring.Poll(&cqe)) {
      const auto buffer = srq.Complete(cqe.wqe_index);
      if (!buffer) std::abort();
      const Message& message = buffers[*buffer];
      for (const uint64_t word : message.words) sum += word;
      last = message.words[7];
      Post(*buffer);
      if (++unrung == kRefill) {
        srq.Ring();
        unrung = 0;
      }
      ++count;
    }
    return count;
  }

  void *srq_area, *ring_area, *line, *armed_area;
  Message* buffers;
  SrqOwner srq;
  CqeConsumer ring;
  uint32_t unrung = 0;
  uint64_t sum = 0;
  uint64_t last = 0;
};

class Outbox {
 public:
  explicit Outbox(const Inbox& to)
      : buffers_(to.buffers),
        claimer_(*SrqClaimer::Attach(to.srq_area, SrqOwner::Bytes(kDepth, 1))),
        producer_(*CqeProducer::Attach(to.ring_area, CqeConsumer::Bytes(kDepth))),
        journal_(*ClaimJournal::Attach(to.line, ClaimJournal::Bytes())),
        armed_(*ArmedWord::Attach(to.armed_area, ArmedWord::Bytes())) {}

  void Send(uint32_t count) {
    uint32_t done = 0;
    while (done < count) {
      if (!producer_.CanPublish(count - done)) continue;
      const ClaimResult claimed = claimer_.Claim(count - done, journal_, wqes_);
      for (uint32_t i = 0; i < claimed.count; ++i) {
        Message message;
        message.words.fill(++number_);
        std::memcpy(reinterpret_cast<char*>(buffers_) + wqes_[i].sge.offset, &message,
                    sizeof message);
        producer_.Publish(
            {.wqe_index = wqes_[i].wqe_index, .srq_id = 1, .byte_len = sizeof message});
      }
      done += claimed.count;
    }
    armed_.TryTake(1, false);
  }

 private:
  Message* buffers_;
  SrqClaimer claimer_;
  CqeProducer producer_;
  ClaimJournal journal_;
  ArmedWord armed_;
  std::array<ClaimedWqe, kWindow> wqes_;
  uint64_t number_ = 0;
};

struct alignas(128) RawSlot {
  std::atomic<uint64_t> words[8];
  void Write(uint64_t number) {
    for (int i = 0; i < 7; ++i) words[i].store(number, std::memory_order_relaxed);
    words[7].store(number, std::memory_order_release);
  }
  void Await(uint64_t number) const {
    while (words[7].load(std::memory_order_acquire) != number) {
    }
  }
};

double NowNs() {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

template <typename RoundTrip>
double MedianRoundTripNs(RoundTrip round_trip) {
  std::vector<double> samples;
  samples.reserve(kBatches);
  for (int batch = 0; batch < kBatches; ++batch) {
    const double start = NowNs();
    for (int i = 0; i < kTripsPerBatch; ++i) round_trip();
    samples.push_back((NowNs() - start) / kTripsPerBatch);
  }
  return Median(std::move(samples));
}

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) std::perror("sched_setaffinity");
}

struct Shared {
  RawSlot* ping = new (Map(sizeof(RawSlot))) RawSlot{};
  RawSlot* pong = new (Map(sizeof(RawSlot))) RawSlot{};
  Inbox client, server;
};

void Serve(Shared* shared, int repetitions) {
  Outbox out(shared->client);
  uint64_t number = 0;
  for (int r = 0; r < repetitions; ++r) {
    for (int i = 0; i < kBatches * kTripsPerBatch; ++i) {
      shared->ping->Await(++number);
      shared->pong->Write(number);
    }
    for (int i = 0; i < kBatches * kTripsPerBatch; ++i) {
      while (shared->server.Receive(1) == 0) {
      }
      out.Send(1);
    }
    for (const uint32_t doorbell : kDoorbells) {
      for (uint64_t echoed = 0; echoed < kRateMessages;) {
        const uint32_t count = shared->server.Receive(doorbell);
        if (count != 0) out.Send(count);
        echoed += count;
      }
    }
  }
}

int Run(int client_cpu, int server_cpu, int repetitions) {
  Shared shared;
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Pin(server_cpu);
    Serve(&shared, repetitions);
    _exit(0);
  }
  Pin(client_cpu);
  Outbox out(shared.server);
  uint64_t number = 0;
  std::vector<double> raw_ns, rings_ns, ratio;
  std::array<std::vector<double>, std::size(kDoorbells)> millions_per_second;
  for (int r = 0; r < repetitions; ++r) {
    raw_ns.push_back(MedianRoundTripNs([&] {
      shared.ping->Write(++number);
      shared.pong->Await(number);
    }));
    rings_ns.push_back(MedianRoundTripNs([&] {
      out.Send(1);
      while (shared.client.Receive(1) == 0) {
      }
    }));
    ratio.push_back(rings_ns.back() / raw_ns.back());
    for (size_t d = 0; d < std::size(kDoorbells); ++d) {
      const uint32_t doorbell = kDoorbells[d];
      std::vector<double> chunk_ns;
      double chunk_start = NowNs();
      uint64_t sent = 0, echoed = 0, next_chunk = kChunk;
      while (echoed < kRateMessages) {
        if (sent < kRateMessages && sent - echoed + doorbell <= kWindow) {
          out.Send(doorbell);
          sent += doorbell;
        }
        echoed += shared.client.Receive(doorbell);
        if (echoed >= next_chunk) {
          const double now = NowNs();
          chunk_ns.push_back((now - chunk_start) / kChunk);
          chunk_start = now;
          next_chunk += kChunk;
        }
      }
      millions_per_second[d].push_back(1e3 / Median(std::move(chunk_ns)));
    }
  }
  int status = 0;
  waitpid(server, &status, 0);

  const double best = *std::min_element(raw_ns.begin(), raw_ns.end());
  const auto disturbed =
      std::count_if(raw_ns.begin(), raw_ns.end(), [&](double each) { return each > 1.5 * best; });
  std::printf("64 B echo, cpus %d and %d, %d repetitions, %d of them disturbed\n", client_cpu,
              server_cpu, repetitions, static_cast<int>(disturbed));
  std::printf("  raw    median %6.1f ns round trip (best %.1f)\n", Median(raw_ns), best);
  std::printf("  rings  median %6.1f ns round trip (best %.1f), %.2f x raw\n", Median(rings_ns),
              *std::min_element(rings_ns.begin(), rings_ns.end()), Median(ratio));
  for (size_t d = 0; d < std::size(kDoorbells); ++d) {
    const auto& rates = millions_per_second[d];
    std::printf(
        "  rate   %2u outstanding, doorbells of %2u: median %5.1f million echoes/s (best %.1f)\n",
        kWindow, kDoorbells[d], Median(rates), *std::max_element(rates.begin(), rates.end()));
  }
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::softdc::shm

int main(int argc, char** argv) {
  const int client_cpu = argc > 2 ? std::atoi(argv[1]) : 0;
  const int server_cpu = argc > 2 ? std::atoi(argv[2]) : 1;
  const int repetitions = argc > 3 ? std::max(1, std::atoi(argv[3])) : 15;
  return sluice::softdc::shm::Run(client_cpu, server_cpu, repetitions);
}

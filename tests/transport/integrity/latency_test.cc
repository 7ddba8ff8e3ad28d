// SPDX-License-Identifier: Apache-2.0
//
// From Flush() to the OK at the peer, in virtual time, when the store's thread has other things to do and looks at its queue
// only now and then: with pipelining the reply does not wait for it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/integrity/signed_pair.h"

namespace sluice::integrity {
namespace latency_test {

constexpr Protection kDif{
    .memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc, .block_bytes = 4096};

// The mean of some transfers, begun at any moment between two looks.
int64_t ReplyNs(Mode mode, int64_t look_every_ns, uint64_t data_bytes) {
  SignedPairOptions options;
  options.queue.offload = mode != Mode::kSoftware;
  options.queue.pipelining = mode == Mode::kPipelined;
  SignedPair pair(options);
  EXPECT_EQ(pair.store.queue->mode(), mode);
  std::vector<std::byte> data(data_bytes);
  Fill(pair.random(), data);
  std::ranges::copy(Protected(kDif, data), pair.store.region.data());
  constexpr int kTransfers = 200;
  int64_t all_ns = 0;
  int64_t next_look_ns = 0;
  const auto step = [&] {
    pair.simulation->RunFor(100);
    if (pair.simulation->NowNs() >= next_look_ns) {
      const auto as = pair.As(0);
      pair.store.queue->Poll();
      next_look_ns = pair.simulation->NowNs() + look_every_ns;
    }
    const auto as = pair.As(1);
    pair.client.queue->Poll();
  };
  for (int i = 0; i < kTransfers; ++i) {
    EXPECT_TRUE(
        pair.Post(pair.Plan(Transfer::Kind::kWrite, kDif, 0, data_bytes, static_cast<uint64_t>(i)))
            .ok());
    pair.Flush();
    const int64_t begun_ns = pair.simulation->NowNs();
    while (pair.client.replies.size() == static_cast<size_t>(i)) step();
    all_ns += pair.simulation->NowNs() - begun_ns;
    // The next one begins at another moment.
    const auto later_ns =
        static_cast<int64_t>(pair.random().Below(static_cast<uint64_t>(look_every_ns) + 1));
    const int64_t until_ns = pair.simulation->NowNs() + look_every_ns + later_ns;
    while (pair.simulation->NowNs() < until_ns || pair.store.queue->open() != 0) step();
  }
  return all_ns / kTransfers;
}

TEST(Latency, PipelinedReplyDoesNotWaitForTheStoresThread) {
  std::printf("mean ns from Flush() to the OK at the peer; 1 us one way, 100 Gb/s\n");
  std::printf("data     looks every   pipelined   serial   software\n");
  for (const uint64_t data_bytes : {4096, 65536}) {
    const int64_t busy_ns = ReplyNs(Mode::kPipelined, 0, data_bytes);
    for (const int64_t look_every_ns : {0, 2'000, 10'000, 50'000}) {
      const int64_t pipelined_ns = ReplyNs(Mode::kPipelined, look_every_ns, data_bytes);
      const int64_t serial_ns = ReplyNs(Mode::kSerial, look_every_ns, data_bytes);
      const int64_t software_ns = ReplyNs(Mode::kSoftware, look_every_ns, data_bytes);
      std::printf("%5lu   %9ld   %9ld   %7ld   %7ld\n", data_bytes, look_every_ns, pipelined_ns,
                  serial_ns, software_ns);
      // Virtual time: the same in every run.
      EXPECT_LT(std::abs(pipelined_ns - busy_ns), 200);
      EXPECT_GE(serial_ns + 200, pipelined_ns);
      if (look_every_ns >= 10'000) {
        EXPECT_GT(serial_ns, pipelined_ns + look_every_ns / 4);
      }
    }
  }
}

}  // namespace latency_test
}  // namespace sluice::integrity

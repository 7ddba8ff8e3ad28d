// SPDX-License-Identifier: Apache-2.0
//
// The wire header: what every message costs before and after its payload.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>

#include "middleware/frame/frame.h"

namespace sluice::frame {
namespace {

constexpr uint32_t kPayloadBytes = 64;

Header Request() {
  Header header;
  header.call_id = 0x1'0000'0007;
  header.method_id = 0x1234'5678'9abc'def0;
  header.timeout_ns = 1'000'000'000;
  header.payload_bytes = kPayloadBytes;
  return header;
}

void BM_FrameEncode(benchmark::State& state) {
  alignas(64) std::array<std::byte, kHeaderBytes + kPayloadBytes> message{};
  Header header = Request();
  for (auto _ : state) {
    ++header.sequence;
    Encode(header, message.data());
    benchmark::DoNotOptimize(message.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_FrameEncode);

void BM_FrameDecode(benchmark::State& state) {
  alignas(64) std::array<std::byte, kHeaderBytes + kPayloadBytes> message{};
  Encode(Request(), message.data());
  Header header;
  for (auto _ : state) {
    benchmark::DoNotOptimize(message.data());
    benchmark::ClobberMemory();
    const Fault fault = Decode(message, &header);
    if (fault != Fault::kNone) state.SkipWithError("the message does not decode");
    benchmark::DoNotOptimize(header);
  }
}
BENCHMARK(BM_FrameDecode);

}  // namespace
}  // namespace sluice::frame

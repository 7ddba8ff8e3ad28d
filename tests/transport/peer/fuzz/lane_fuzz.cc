// SPDX-License-Identifier: Apache-2.0
//
// What a peer may say about lanes, as it stands; and what it may write into one: the input is the lane's memory.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/transport/peer/fuzz/fuzz_target.h"
#include "transport/lane/reader.h"
#include "transport/lane/words.h"

namespace {

struct alignas(sluice::lane::kBlockBytes) Memory {
  std::byte bytes[4 * 256];
};

void ReadAsLane(sluice::lane::Layout layout, bool in_order, sluice::peer::Bytes input) {
  using sluice::lane::Reader;
  Memory memory = {};
  std::copy_n(input.begin(), std::min(input.size(), sizeof(memory.bytes)), memory.bytes);
  // The value that stands at the end of the first slot is the one expected there, as a peer knows it.
  uint64_t stamp = 0;
  std::memcpy(&stamp, memory.bytes + 248, sizeof(stamp));
  const uint32_t secret = sluice::lane::StampValue(stamp);
  Reader reader({layout, 4, 256}, memory.bytes, secret, in_order);
  std::array<std::byte, 256> message;
  for (uint32_t i = 0; i < 8; ++i) {
    if (!in_order) reader.Announce(sluice::lane::Immediate(0, secret + i));
    uint32_t length_bytes = 0;
    if (reader.Look(message.data(), &length_bytes) != Reader::Found::kMessage) return;
    sluice::peer::Require(i < 4, "no slot is read twice");
    sluice::peer::Require(
        length_bytes != 0 && sluice::lane::EncodedBytes(layout, length_bytes) <= 256,
        "a message fits into its slot");
    reader.Take();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const peer::Bytes bytes = peer::Input(data, size);
  if (const auto ask = lane::LoadAsk(bytes)) {
    ++peer::accepted;
    std::array<std::byte, lane::kAskBytes> again;
    lane::Store(*ask, again.data());
    peer::Require(peer::Hex(again) == peer::Hex(bytes), "an ask read and written is the same");
    const lane::Grant& grant = ask->grant;
    peer::Require(grant.slots >= lane::kMinSlots && lane::IsSlotSize(grant.slot_bytes),
                  "a lane has slots");
  }
  if (const auto answer = lane::LoadAnswer(bytes)) {
    ++peer::accepted;
    std::array<std::byte, lane::kAnswerBytes> again;
    lane::Store(*answer, again.data());
    peer::Require(peer::Hex(again) == peer::Hex(bytes), "an answer read and written is the same");
  }
  for (const lane::Layout layout : {lane::Layout::kWhole, lane::Layout::kBlocks}) {
    ReadAsLane(layout, true, bytes);
    ReadAsLane(layout, false, bytes);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/words.h"

#include <cstring>

#include "transport/peer/wire.h"

namespace sluice::lane {

using peer::Load;

void Store(const Ask& ask, std::byte* to) {
  std::memset(to, 0, kAskBytes);
  const Grant& grant = ask.grant;
  peer::Store(to, grant.generation);
  peer::Store(to + 4, ask.turn);
  peer::Store(to + 8, static_cast<uint8_t>(ask.mode));
  peer::Store(to + 9, static_cast<uint8_t>(grant.layout));
  peer::Store(to + 10, static_cast<uint16_t>(grant.lane));
  peer::Store(to + 12, grant.slots);
  peer::Store(to + 16, grant.slot_bytes);
  peer::Store(to + 20, grant.secret);
  peer::Store(to + 24, grant.rkey);
  peer::Store(to + 32, grant.address);
}

std::optional<Ask> LoadAsk(std::span<const std::byte> bytes) {
  if (bytes.size() != kAskBytes) return std::nullopt;
  const std::byte* in = bytes.data();
  const auto mode = Load<uint8_t>(in + 8);
  const auto layout = Load<uint8_t>(in + 9);
  Ask ask{.turn = Load<uint32_t>(in + 4),
          .mode = static_cast<Mode>(mode),
          .grant = {.generation = Load<uint32_t>(in),
                    .rkey = Load<uint32_t>(in + 24),
                    .address = Load<uint64_t>(in + 32),
                    .slots = Load<uint32_t>(in + 12),
                    .slot_bytes = Load<uint32_t>(in + 16),
                    .secret = Load<uint32_t>(in + 20),
                    .lane = Load<uint16_t>(in + 10),
                    .layout = static_cast<Layout>(layout)}};
  const Grant& grant = ask.grant;
  const bool sound = mode >= 1 && mode <= 3 && IsLayout(layout) && grant.generation != 0 &&
                     grant.slots >= kMinSlots && grant.slots <= kMaxSlots &&
                     IsSlotSize(grant.slot_bytes) && grant.lane < kMaxLanes &&
                     grant.address % kBlockBytes == 0 && Load<uint32_t>(in + 28) == 0;
  if (!sound) return std::nullopt;
  return ask;
}

void Store(const Answer& answer, std::byte* to) {
  std::memset(to, 0, kAnswerBytes);
  peer::Store(to, answer.generation);
  peer::Store(to + 4, answer.turn);
  peer::Store(to + 8, static_cast<uint8_t>(answer.mode));
  peer::Store(to + 12, answer.written);
}

std::optional<Answer> LoadAnswer(std::span<const std::byte> bytes) {
  if (bytes.size() != kAnswerBytes) return std::nullopt;
  const std::byte* in = bytes.data();
  const auto mode = Load<uint8_t>(in + 8);
  if (mode > 3 || (Load<uint32_t>(in + 8) & 0xffffff00) != 0 || Load<uint32_t>(in) == 0) {
    return std::nullopt;
  }
  return Answer{.generation = Load<uint32_t>(in),
                .turn = Load<uint32_t>(in + 4),
                .mode = static_cast<Mode>(mode),
                .written = Load<uint32_t>(in + 12)};
}

}  // namespace sluice::lane

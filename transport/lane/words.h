// SPDX-License-Identifier: Apache-2.0
//
// Words: messages between the two ends of a lane, behind the prefix of a control message. Little endian.
//
//   Ask, receiver to sender, 40 bytes             Answer, sender to receiver, 16 bytes
//     0  u32  generation of the lane                0  u32  generation
//     4  u32  turn: number of this question         4  u32  turn of the question that is answered
//     8  u8   requested mode, see Mode              8  u8   current mode, see Mode
//     9  u8   layout                                9  zero
//    10  u16  number of the lane                   12  u32  messages written in the previous mode
//    12  u32  slots
//    16  u32  bytes of a slot
//    20  u32  value of the first stamp
//    24  u32  key of the memory
//    28  u32  zero
//    32  u64  address of slot 0
//
// Each Ask contains all data of the lane, so it may be lost or repeated. The first Ask with a new generation grants the lane.
#ifndef SLUICE_TRANSPORT_LANE_WORDS_H_
#define SLUICE_TRANSPORT_LANE_WORDS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/lane/writer.h"

namespace sluice::lane {

enum class Mode : uint8_t {
  // Only in answers: requests failed. The sender writes no more, and messages may be missing.
  kLost = 0,
  kSilent = 1,     // messages are written without completions
  kAnnounced = 2,  // each message has immediate data
  kClosed = 3,     // the sender writes no more; all messages written before arrive
};

struct Ask {
  uint32_t turn = 0;
  Mode mode = Mode::kSilent;
  Grant grant;
};
struct Answer {
  uint32_t generation = 0;
  uint32_t turn = 0;
  Mode mode = Mode::kLost;
  uint32_t written = 0;
};

inline constexpr size_t kAskBytes = 40;
inline constexpr size_t kAnswerBytes = 16;

void Store(const Ask& ask, std::byte* to);
void Store(const Answer& answer, std::byte* to);
// Decodes a message. Returns nullopt if its size or a value is invalid.
std::optional<Ask> LoadAsk(std::span<const std::byte> bytes);
std::optional<Answer> LoadAnswer(std::span<const std::byte> bytes);

}  // namespace sluice::lane

#endif  // SLUICE_TRANSPORT_LANE_WORDS_H_

// SPDX-License-Identifier: Apache-2.0
//
// What a hostile peer does with memory: that of large messages, lanes, and any other.
#include <algorithm>
#include <vector>

#include "tests/hostile/hostile_peer.h"
#include "tests/hostile/lies.h"
#include "transport/lane/words.h"

namespace sluice::hostile {

using peer::Kind;

void HostilePeer::DoLarge(Persona& persona, base::SeededRandom& dice) {
  std::vector<std::byte> payload;
  for (uint64_t left = 1 + dice.Below(6); left != 0 && HasCredit(persona); --left) {
    frame::Header header = Request(persona, dice, &payload);
    header.flags |= frame::kFlagLarge;
    const uint64_t bytes = 1 + dice.Below(lent_.size_bytes());
    frame::Place place{.address = reinterpret_cast<uint64_t>(lent_.data()),
                       .bytes = bytes,
                       .key = lent_.rkey(),
                       .number = static_cast<uint32_t>(dice.Below(8))};
    switch (dice.Below(6)) {
      case 0:
        place.address = Twist(place.address, dice);
        break;
      case 1:
        place.bytes = Twist(place.bytes, dice);
        break;
      case 2:
        place.key = static_cast<uint32_t>(Twist(place.key, dice));
        break;
      case 3:
        place.number = static_cast<uint32_t>(Twist(place.number, dice));
        break;
      default:
        break;
    }
    payload.assign(frame::kPlaceBytes, std::byte{0});
    frame::Encode(place, payload.data());
    SendFrame(persona, header, payload);
  }
}

// ---- One-sided

void HostilePeer::DoLaneWrite(Persona& persona, base::SeededRandom& dice) {
  if (!persona.lane.has_value()) return;
  std::vector<std::byte> room(2'048);
  for (uint64_t left = 1 + dice.Below(8); left != 0; --left) {
    const size_t most = persona.lane->grant().slot_bytes > 192 ? 48 : 0;
    std::vector<std::byte> payload;
    frame::Header header = Request(persona, dice, &payload);
    payload.resize(std::min(payload.size(), most));
    header.sequence = persona.sequence;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    peer::Prefix prefix{.peer_index = persona.remote_index,
                        .token = persona.remote_token,
                        .granted = script_.manners.window + persona.consumed,
                        .kind = Kind::kData,
                        .flags = 0,
                        .number = persona.committed};
    const uint64_t lie = dice.Below(16);
    if (lie == 0) prefix.number = static_cast<uint16_t>(Twist(prefix.number, dice));
    if (lie == 1) prefix.token = static_cast<uint32_t>(Twist(prefix.token, dice));
    if (lie == 2) prefix.kind = static_cast<Kind>(dice.Below(10));
    if (lie == 3) prefix.granted = static_cast<uint32_t>(Twist(prefix.granted, dice));
    peer::StorePrefix(room.data(), prefix);
    frame::Encode(header, room.data() + peer::kPrefixBytes);
    std::copy(payload.begin(), payload.end(),
              room.data() + peer::kPrefixBytes + frame::kHeaderBytes);
    const auto length =
        static_cast<uint32_t>(peer::kPrefixBytes + frame::kHeaderBytes + payload.size());
    if (!persona.lane->Fits(length, static_cast<uint32_t>(room.size()))) return;
    const lane::Write put = persona.lane->Put(room.data(), length);
    ++persona.sequence;
    ++persona.committed;
    ++persona.used;
    queue::RemoteWrite write{.address = put.address,
                             .rkey = put.rkey,
                             .immediate = put.immediate,
                             .offset_bytes = put.offset_bytes,
                             .length_bytes = put.length_bytes};
    if (lie == 4) write.address = Twist(write.address, dice);
    if (lie == 5) write.rkey = static_cast<uint32_t>(Twist(write.rkey, dice));
    if (lie == 6) write.immediate = static_cast<uint32_t>(Twist(write.immediate, dice));
    if (lie == 7) {
      // Nonsense, in the form of a message: the stamp stands where it should.
      const std::vector<std::byte> noise = RandomBytes(peer::kPrefixBytes, dice);
      std::copy(noise.begin(), noise.end(), room.begin() + put.offset_bytes);
    }
    if (lie == 8) {
      const std::vector<std::byte> noise = RandomBytes(8, dice);  // a stamp
      std::copy(noise.begin(), noise.end(), room.begin() + put.offset_bytes + put.length_bytes - 8);
    }
    const bool announced = OneIn(dice, 2);
    WriteRemote(persona, write, announced, room);
  }
}

// Near a lane that was granted, if there is one; else anywhere.
void HostilePeer::DoWriteAnywhere(const Act& act, Persona& persona, base::SeededRandom& dice) {
  lane::Grant grant{.rkey = lent_.rkey(), .address = reinterpret_cast<uint64_t>(lent_.data())};
  if (persona.lane.has_value()) grant = persona.lane->grant();
  const bool announce = act.operation == Operation::kAnnounce;
  const queue::RemoteWrite write{
      .address = announce ? grant.address : Twist(grant.address, dice),
      .rkey = announce ? grant.rkey : static_cast<uint32_t>(Twist(grant.rkey, dice)),
      .immediate = static_cast<uint32_t>(
          OneIn(dice, 2) ? lane::Immediate(grant.lane, static_cast<uint32_t>(dice.Below(64)))
                         : dice.Next64()),
      .offset_bytes = 0,
      .length_bytes = 64};
  WriteRemote(persona, write, announce || OneIn(dice, 2), RandomBytes(64, dice));
}

}  // namespace sluice::hostile

// SPDX-License-Identifier: Apache-2.0
//
// What a hostile peer does: one act at a time. A case, or a function, for each operation of the grammar;
// hostile_memory.cc has those about memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include "middleware/frame/method_id.h"
#include "proto/error_detail.pb.h"
#include "tests/hostile/hostile_peer.h"
#include "tests/hostile/lies.h"
#include "tests/hostile/victim.h"
#include "transport/lane/words.h"

namespace sluice::hostile {
namespace {

using peer::Kind;

constexpr int64_t kFloodNs = 3 * kMs;
constexpr uint32_t kDataSlotsKept = 512;
constexpr int64_t kDialNs = 200 * kMs;
constexpr uint32_t kMostPayload = 1'900;
constexpr uint32_t kMostBurst = 24;
constexpr uint32_t kMostFlood = 48;
constexpr uint32_t kMostOvercommit = 900;

std::vector<std::byte> Serialized(uint32_t number, uint32_t bytes) {
  ErrorDetail text;
  text.set_syndrome(number);
  text.set_cause(std::string(bytes, 'x'));
  const std::string all = text.SerializeAsString();
  const auto* data = reinterpret_cast<const std::byte*>(all.data());
  return {data, data + all.size()};
}

}  // namespace

void HostilePeer::Do(const Act& act) {
  base::SeededRandom dice(act.dice);
  Persona& persona = *personas_[act.persona];
  switch (act.operation) {
    case Operation::kDial:
      return Dial(act.persona, /*lying=*/false, dice);
    case Operation::kDialLying:
      return Dial(act.persona, /*lying=*/true, dice);
    case Operation::kProveLying:
      if (persona.has_target) Prove(persona, /*lying=*/true, dice);
      return;
    case Operation::kHangUp:
      return Retire(persona);
    default:
      break;
  }
  if (persona.state == Persona::State::kNobody && script_.manners.returns) {
    return Dial(act.persona, /*lying=*/false, dice);
  }
  // Before the handshake's end a little of everything is tried as well.
  if (!persona.has_target || (persona.state != Persona::State::kUp && !OneIn(dice, 4))) return;
  if (act.operation <= Operation::kForge) return DoControl(act, persona, dice);
  DoCalls(act, persona, dice);
}

// ---- Connections

void HostilePeer::Dial(uint32_t number, bool lying, base::SeededRandom& dice) {
  if (serving_) return;
  // Who is up stays, mostly.
  if (personas_[number]->state == Persona::State::kUp && !OneIn(dice, 3)) return;
  Retire(*personas_[number]);
  Persona& persona = *personas_[number];
  peer::Greeting greeting{.epoch = 1 + dice.Below(3),
                          .secret_id = secrets_.own().id,
                          .control_dctn = control_->dctn(),
                          .nonce = peer::DrawNonce(random_)};
  const uint64_t lie = lying ? dice.Below(5) : 5;
  if (lie == 0) greeting.control_dctn = 0;
  if (lie == 1) greeting.control_dctn = static_cast<uint32_t>(dice.Below(peer::kMaxQpn) + 1);
  if (lie == 2) greeting.secret_id = static_cast<uint32_t>(dice.Next64());
  persona.hello = peer::EncodeHello(greeting, secrets_.own());
  if (lie == 3) {
    persona.hello[dice.Below(persona.hello.size())] ^= static_cast<std::byte>(1u << dice.Below(8));
  }
  if (lie == 4) persona.hello = recorded_;
  recorded_ = persona.hello;
  const auto id = connections_->Connect(server_, kPort, clock_.NowNs() + kDialNs, persona.hello);
  if (!id.ok()) return;
  persona.connection = *id;
  persona.state = Persona::State::kDialling;
}

void HostilePeer::Prove(Persona& persona, bool lying, base::SeededRandom& dice) {
  if (!serving_) persona.token = ++tokens_;
  peer::Terms terms = Terms(persona);
  const uint64_t lie = lying ? dice.Below(12) : 12;
  if (lie == 0) terms.data_dctn = static_cast<uint32_t>(Twist(terms.data_dctn, dice));
  if (lie == 1) terms.max_message_bytes = static_cast<uint32_t>(Twist(64, dice));
  if (lie == 2) terms.data_key = dice.Next64();
  if (lie == 3) terms.control_key = dice.Next64();
  if (lie == 4) terms.peer_index = static_cast<uint32_t>(Twist(terms.peer_index, dice));
  if (lie == 5) terms.token = static_cast<uint32_t>(Twist(terms.token, dice));
  if (lie == 6) terms.credits = static_cast<uint32_t>(Twist(terms.credits, dice));
  if (lie == 7) terms.reads = static_cast<uint8_t>(Twist(terms.reads, dice));
  if (lie == 8) terms.mtu = static_cast<uint8_t>(dice.Below(8));
  if (lie == 9) terms.service_level = static_cast<uint8_t>(dice.Below(32));
  if (lie == 10) terms.max_large_bytes = Twist(terms.max_large_bytes, dice);
  std::vector<std::byte> message(peer::kPrefixBytes);
  peer::StorePrefix(message.data(), {.peer_index = persona.remote_index,
                                     .token = persona.remote_token,
                                     .granted = script_.manners.window,
                                     .kind = serving_ ? Kind::kAnswer : Kind::kProof,
                                     .flags = 0,
                                     .number = 0});
  const peer::Key& key = serving_ ? persona.keys.answer : persona.keys.proof;
  const auto sealed = peer::SealTerms(terms, key, message);
  message.insert(message.end(), sealed.begin(), sealed.end());
  if (lie == 11) message[dice.Below(message.size())] ^= std::byte{4};
  Post(persona, /*control=*/true, message);
  if (persona.state == Persona::State::kWelcomed) persona.state = Persona::State::kProved;
}

// ---- What it sends

void HostilePeer::Post(Persona& persona, bool control, std::span<const std::byte> bytes) {
  if (!persona.has_target || (!control && persona.target.dctn[0] == 0)) return;
  const uint32_t index = slots_->Take(control);
  if (index == queue::kNoSlot) return;
  queue::Slot& slot = (*slots_)[index];
  std::copy(bytes.begin(), bytes.end(), slot.data);
  slot.length_bytes = static_cast<uint32_t>(bytes.size());
  slot.signal = true;
  queue_->Post(&persona.target, index);
  if (!control) queue_->Release(index);
  ++messages_;
  bytes_ += bytes.size();
}

void HostilePeer::WriteRemote(Persona& persona, const queue::RemoteWrite& write, bool announced,
                              std::span<const std::byte> bytes) {
  if (persona.target.dctn[0] == 0) return;
  const uint32_t index = slots_->Take(/*control=*/false);
  if (index == queue::kNoSlot) return;
  queue::Slot& slot = (*slots_)[index];
  std::copy(bytes.begin(), bytes.end(), slot.data);
  slot.length_bytes = static_cast<uint32_t>(bytes.size());
  slot.signal = true;
  slot.operation = announced ? queue::Operation::kWriteAnnounced : queue::Operation::kWrite;
  slot.write = write;
  queue_->Post(&persona.target, index);
  queue_->Release(index);
  ++messages_;
  bytes_ += write.length_bytes;
}

void HostilePeer::SendControl(Persona& persona, Kind kind, std::span<const std::byte> body,
                              const Change& change) {
  persona.told = persona.consumed;
  peer::Prefix prefix{.peer_index = persona.remote_index,
                      .token = persona.remote_token,
                      .granted = script_.manners.window + persona.consumed,
                      .kind = kind,
                      .flags = 0,
                      .number = kind == Kind::kGoodbye ? persona.committed : uint16_t{0}};
  if (script_.manners.granting == Granting::kNever) prefix.granted = script_.manners.window;
  if (change) change(prefix);
  std::vector<std::byte> message(peer::kPrefixBytes);
  peer::StorePrefix(message.data(), prefix);
  message.insert(message.end(), body.begin(), body.end());
  Post(persona, /*control=*/true, message);
}

void HostilePeer::SendData(Persona& persona, std::span<const std::byte> message,
                           const Change& change) {
  if (persona.target.dctn[0] == 0) return;
  peer::Prefix prefix{.peer_index = persona.remote_index,
                      .token = persona.remote_token,
                      .granted = script_.manners.window + persona.consumed,
                      .kind = Kind::kData,
                      .flags = 0,
                      .number = persona.committed++};
  ++persona.used;
  if (script_.manners.granting == Granting::kNever) prefix.granted = script_.manners.window;
  if (change) change(prefix);
  std::vector<std::byte> bytes(peer::kPrefixBytes);
  peer::StorePrefix(bytes.data(), prefix);
  bytes.insert(bytes.end(), message.begin(), message.end());
  Post(persona, /*control=*/false, bytes);
}

void HostilePeer::SendFrame(Persona& persona, frame::Header header,
                            std::span<const std::byte> payload, const Change& change) {
  header.sequence = persona.sequence++;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  std::vector<std::byte> message(frame::kHeaderBytes);
  frame::Encode(header, message.data());
  message.insert(message.end(), payload.begin(), payload.end());
  SendData(persona, message, change);
}

frame::Header HostilePeer::Request(Persona& persona, base::SeededRandom& dice,
                                   std::vector<std::byte>* payload) {
  if (serving_) return Reply(persona, dice, payload);
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.call_id = persona.next_call++;
  if (OneIn(dice, 16)) header.call_id = SomeCall(persona, dice);
  const uint64_t which = dice.Below(8);
  if (which < 3) {
    header.method_id = kEcho.id;
  } else if (which < 5) {
    header.method_id = kHold.id;
  } else if (which < 7) {
    header.method_id = kPipe.id;
    header.flags = frame::kFlagClientStreams | frame::kFlagServerStreams;
  } else {
    header.method_id = dice.Next64() | 1;
  }
  if (OneIn(dice, 4)) header.timeout_ns = 1 + dice.Below(200 * kUs);
  payload->clear();
  if (which < 5) *payload = Serialized(1, static_cast<uint32_t>(dice.Below(kMostPayload)));
  if (OneIn(dice, 8)) *payload = RandomBytes(dice.Below(64), dice);
  return header;
}

// One that was begun, over or not; or none.
uint64_t HostilePeer::SomeCall(const Persona& persona, base::SeededRandom& dice) const {
  if (serving_ && !persona.asked.empty() && !OneIn(dice, 16)) {
    return persona.asked[dice.Below(persona.asked.size())];
  }
  const uint64_t recent = std::min<uint64_t>(persona.next_call, 8);
  return OneIn(dice, 16) ? dice.Next64() : persona.next_call - 1 - dice.Below(recent);
}

// ---- Control messages

void HostilePeer::DoControl(const Act& act, Persona& persona, base::SeededRandom& dice) {
  const auto lies_about_credit = [&dice](peer::Prefix& prefix) {
    prefix.granted = static_cast<uint32_t>(Twist(prefix.granted, dice));
    if (OneIn(dice, 2)) prefix.flags = peer::kReportSoon;
  };
  switch (act.operation) {
    case Operation::kGoodbye:
      SendControl(persona, Kind::kGoodbye, {}, [&dice](peer::Prefix& prefix) {
        if (OneIn(dice, 2)) prefix.number = static_cast<uint16_t>(Twist(prefix.number, dice));
      });
      return;
    case Operation::kCredits:
      return SendControl(persona, Kind::kCredits, {}, lies_about_credit);
    case Operation::kProbe:
      return SendControl(persona, Kind::kProbe, {}, lies_about_credit);
    case Operation::kFloodControl: {
      constexpr Kind kKinds[] = {Kind::kCredits,      Kind::kProbe,       Kind::kLaneAsk,
                                 Kind::kLaneAnswer,   Kind::kProof,       Kind::kWindowAsk,
                                 Kind::kWindowRecall, Kind::kWindowReturn};
      const Kind kind = kKinds[dice.Below(std::size(kKinds))];
      const std::vector<std::byte> body =
          RandomBytes(kind == Kind::kLaneAsk ? lane::kAskBytes : dice.Below(17), dice);
      for (uint64_t left = 1 + dice.Below(kMostFlood); left != 0; --left) {
        SendControl(persona, kind, body);
      }
      return;
    }
    case Operation::kLaneAsk: {
      lane::Ask ask{.turn = static_cast<uint32_t>(dice.Below(4)),
                    .mode = static_cast<lane::Mode>(1 + dice.Below(3)),
                    .grant = {.generation = static_cast<uint32_t>(1 + dice.Below(3)),
                              .rkey = lent_.rkey(),
                              .address = reinterpret_cast<uint64_t>(lent_.data()),
                              .slots = 16,
                              .slot_bytes = 256,
                              .secret = static_cast<uint32_t>(dice.Next64()),
                              .lane = static_cast<uint32_t>(dice.Below(4)),
                              .layout = static_cast<lane::Layout>(1 + dice.Below(2))}};
      switch (dice.Below(8)) {
        case 0:
          ask.grant.rkey = static_cast<uint32_t>(Twist(ask.grant.rkey, dice));
          break;
        case 1:
          ask.grant.address = Twist(ask.grant.address, dice) & ~uint64_t{127};
          break;
        case 2:
          ask.grant.slots = static_cast<uint32_t>(Twist(ask.grant.slots, dice));
          break;
        case 3:
          ask.grant.slot_bytes = static_cast<uint32_t>(Twist(ask.grant.slot_bytes, dice));
          break;
        case 4:
          ask.grant.generation = static_cast<uint32_t>(Twist(ask.grant.generation, dice));
          break;
        default:
          break;
      }
      std::byte body[lane::kAskBytes];
      lane::Store(ask, body);
      return SendControl(persona, Kind::kLaneAsk, body);
    }
    case Operation::kLaneAnswer: {
      lane::Answer answer{.generation = 1, .turn = 1, .mode = lane::Mode::kClosed, .written = 0};
      if (persona.lane.has_value()) {
        answer.generation = persona.lane->grant().generation;
        answer.written = persona.lane->written();
      }
      answer.mode = static_cast<lane::Mode>(dice.Below(4));
      answer.turn = static_cast<uint32_t>(dice.Below(6));
      if (OneIn(dice, 2)) answer.written = static_cast<uint32_t>(Twist(answer.written, dice));
      if (OneIn(dice, 8)) answer.generation = static_cast<uint32_t>(Twist(answer.generation, dice));
      std::byte body[lane::kAnswerBytes];
      lane::Store(answer, body);
      return SendControl(persona, Kind::kLaneAnswer, body);
    }
    case Operation::kStrayControl: {
      const std::vector<std::byte> body = RandomBytes(dice.Below(96), dice);
      return SendControl(persona, static_cast<Kind>(dice.Below(10)), body,
                         [&dice](peer::Prefix& prefix) {
                           if (OneIn(dice, 2)) prefix.flags = static_cast<uint8_t>(dice.Below(4));
                           if (OneIn(dice, 2)) prefix.number = static_cast<uint16_t>(dice.Below(3));
                         });
    }
    default:  // kForge
      return SendControl(persona, static_cast<Kind>(1 + dice.Below(8)), {},
                         [&dice](peer::Prefix& prefix) {
                           if (OneIn(dice, 2)) {
                             prefix.peer_index = static_cast<uint32_t>(dice.Below(12));
                           } else {
                             prefix.token = static_cast<uint32_t>(Twist(prefix.token, dice));
                           }
                         });
  }
}

// ---- Data messages

void HostilePeer::DoCalls(const Act& act, Persona& persona, base::SeededRandom& dice) {
  std::vector<std::byte> payload;
  // What is no lie about credits keeps to them.
  const bool beyond = act.operation == Operation::kOvercommit;
  const bool one_sided = act.operation >= Operation::kLaneWrite;
  if (!beyond && !one_sided && !HasCredit(persona)) return;
  switch (act.operation) {
    case Operation::kRequest: {
      const frame::Header header = Request(persona, dice, &payload);
      return SendFrame(persona, header, payload);
    }
    case Operation::kStream: {
      frame::Header header;
      constexpr frame::Kind kKinds[] = {frame::Kind::kStreamData, frame::Kind::kStreamData,
                                        frame::Kind::kStreamWindow, frame::Kind::kStreamEnd};
      header.kind = kKinds[dice.Below(std::size(kKinds))];
      header.call_id = SomeCall(persona, dice);
      if (header.kind != frame::Kind::kStreamEnd) {
        header.flow_window = static_cast<uint32_t>(OneIn(dice, 8) ? Twist(16, dice) : 1'000);
      }
      if (header.kind == frame::Kind::kStreamData) {
        payload = Serialized(2, static_cast<uint32_t>(dice.Below(kMostPayload)));
      }
      return SendFrame(persona, header, payload);
    }
    case Operation::kCancel: {
      frame::Header header;
      header.kind = frame::Kind::kCancel;
      header.call_id = SomeCall(persona, dice);
      return SendFrame(persona, header, {});
    }
    case Operation::kFlow: {
      frame::Header header;
      header.kind = static_cast<frame::Kind>(3 + dice.Below(5));
      header.flow_id = static_cast<uint32_t>(dice.Below(3));
      header.flow_window = 16;
      payload = RandomBytes(dice.Below(20), dice);
      return SendFrame(persona, header, payload);
    }
    case Operation::kDrain: {
      frame::Header header;
      header.kind = frame::Kind::kDrain;
      return SendFrame(persona, header, {});
    }
    case Operation::kLarge:
      return DoLarge(persona, dice);
    case Operation::kTaken: {
      frame::Header header;
      header.kind = frame::Kind::kTaken;
      header.call_id = OneIn(dice, 4) ? frame::kNothingTaken : dice.Below(8);
      return SendFrame(persona, header, {});
    }
    case Operation::kLieInHeader:
      return DoLieInHeader(persona, dice);
    case Operation::kBurst:
      for (uint64_t left = 1 + dice.Below(kMostBurst); left != 0 && HasCredit(persona); --left) {
        const frame::Header header = Request(persona, dice, &payload);
        SendFrame(persona, header, payload);
      }
      return;
    case Operation::kOvercommit:
      if (OneIn(dice, 4)) {
        flooding_until_ns_ = now_ns() + kFloodNs;
        flooder_ = act.persona;
        return Flood();
      }
      // Calls, or what has no answer, which nothing stops but its receiver.
      for (uint64_t left = 1 + dice.Below(kMostOvercommit), calls = dice.Below(2); left != 0;
           --left) {
        frame::Header header = Request(persona, dice, &payload);
        payload.resize(calls != 0 ? std::min<size_t>(payload.size(), 32) : 0);
        if (calls == 0) {
          header = {.kind = frame::Kind::kCancel, .call_id = dice.Next64()};
        }
        SendFrame(persona, header, payload);
      }
      return;
    case Operation::kNumbers:
      return DoNumbers(persona, dice);
    case Operation::kGarbage:
    case Operation::kTooLong:
      return DoGarbage(act, persona, dice);
    case Operation::kLaneWrite:
      return DoLaneWrite(persona, dice);
    default:
      return DoWriteAnywhere(act, persona, dice);
  }
}

// What has no answer, as fast as the queue takes it.
void HostilePeer::Flood() {
  Persona& persona = *personas_[flooder_];
  if (persona.state != Persona::State::kUp) return;
  const frame::Header header{.kind = frame::Kind::kCancel, .call_id = 77};
  // While its target is broken or closed, a slot is free again at once.
  for (uint32_t before = UINT32_MAX;
       slots_->free_data() > kDataSlotsKept && slots_->free_data() < before;) {
    before = slots_->free_data();
    SendFrame(persona, header, {});
  }
}

void HostilePeer::DoNumbers(Persona& persona, base::SeededRandom& dice) {
  std::vector<std::byte> payload;
  frame::Header header = Request(persona, dice, &payload);
  // The transport's number, the session's, or both.
  if (OneIn(dice, 2)) {
    persona.sequence = static_cast<uint32_t>(Twist(persona.sequence, dice));
  }
  if (OneIn(dice, 2)) {
    persona.committed = static_cast<uint16_t>(Twist(persona.committed, dice));
  }
  const uint32_t sequence = persona.sequence;
  const uint16_t committed = persona.committed;
  SendFrame(persona, header, payload);
  if (!OneIn(dice, 2)) return;
  persona.sequence = sequence;  // once more
  persona.committed = committed;
  if (HasCredit(persona)) SendFrame(persona, header, payload);
}

void HostilePeer::DoLieInHeader(Persona& persona, base::SeededRandom& dice) {
  std::vector<std::byte> payload;
  frame::Header header = Request(persona, dice, &payload);
  header.sequence = persona.sequence++;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  switch (dice.Below(10)) {
    case 0:
      header.version = static_cast<uint8_t>(Twist(header.version, dice));
      break;
    case 1:
      header.kind = static_cast<frame::Kind>(dice.Below(16));
      break;
    case 2:
      header.flags = static_cast<uint16_t>(Twist(header.flags, dice));
      break;
    case 3:
      header.flow_id = static_cast<uint32_t>(Twist(0, dice));
      break;
    case 4:
      header.flow_window = static_cast<uint32_t>(Twist(0, dice));
      break;
    case 5:
      header.method_id = Twist(header.method_id, dice);
      break;
    case 6:
      header.timeout_ns = Twist(header.timeout_ns, dice);
      break;
    case 7:
      header.payload_bytes = static_cast<uint32_t>(Twist(header.payload_bytes, dice));
      break;
    case 8:
      header.status_code = static_cast<uint16_t>(Twist(0, dice));
      break;
    default:
      header.flags |= OneIn(dice, 2) ? frame::kFlagMetadata : frame::kFlagAttachment;
      break;
  }
  std::vector<std::byte> message(frame::kHeaderBytes);
  frame::Encode(header, message.data());
  message.insert(message.end(), payload.begin(), payload.end());
  SendData(persona, message);
}

void HostilePeer::DoGarbage(const Act& act, Persona& persona, base::SeededRandom& dice) {
  if (act.operation == Operation::kTooLong) {
    return SendData(persona, RandomBytes(2'300 + dice.Below(1'700), dice));
  }
  const std::vector<std::byte> bytes = RandomBytes(dice.Below(256), dice);
  if (OneIn(dice, 2)) return SendData(persona, bytes);
  Post(persona, OneIn(dice, 2), std::span(bytes).first(std::min<size_t>(bytes.size(), 200)));
}

}  // namespace sluice::hostile

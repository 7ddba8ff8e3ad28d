// SPDX-License-Identifier: Apache-2.0
//
// A hostile peer as a server: the other half of the handshake, and what it makes of calls. Its acts are those of any hostile peer.
#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/hostile/hostile_peer.h"
#include "tests/hostile/lies.h"

namespace sluice::hostile {
namespace {

// Calls that it remembers of a connection.
constexpr size_t kAsked = 16;
constexpr uint64_t kMostReply = 1'900;

}  // namespace

absl::Status HostilePeer::Serve() {
  serving_ = true;
  return connections_->Listen("*", kPort).status();
}

void HostilePeer::Welcome(cm::ConnectionId id, std::span<const std::byte> hello,
                          const cm::PathInfo& path) {
  const auto free = std::find_if(personas_.begin(), personas_.end(), [](const auto& persona) {
    return persona->state == Persona::State::kNobody;
  });
  const auto greeting = peer::DecodeHello(hello);
  if (free == personas_.end() || !greeting.ok()) return connections_->Reject(id, {});
  Persona& persona = **free;
  const auto route = handles_->Acquire(path.ah, 0);
  if (!route.ok()) return connections_->Reject(id, {});
  persona.connection = id;
  persona.token = ++tokens_;
  persona.target.ah = route->handle;
  persona.target.cookie = NumberOf(persona);
  persona.target.dctn[1] = greeting->control_dctn;
  queue_->Open(&persona.target);
  persona.has_target = true;
  const peer::Greeting own{.epoch = 7,
                           .secret_id = secrets_.own().id,
                           .control_dctn = control_->dctn(),
                           .nonce = peer::DrawNonce(random_)};
  auto welcome = peer::EncodeWelcome(
      own, {.key = kHostileKey, .peer_index = NumberOf(persona), .token = persona.token},
      hello.first(peer::kHelloBytes), secrets_.own(), &persona.keys);
  if (!script_.manners.establishes) welcome[random_.Below(welcome.size())] ^= std::byte{1};
  persona.state = Persona::State::kWelcomed;
  connections_->Accept(id, welcome);
}

void HostilePeer::OnProof(Persona& persona, std::span<const std::byte> body,
                          std::span<const std::byte> whole) {
  if (persona.state != Persona::State::kWelcomed || !script_.manners.proves) return;
  const auto terms = peer::OpenTerms(body, persona.keys.proof, whole.first(peer::kPrefixBytes));
  if (!terms.ok()) return;
  persona.target.dctn[0] = terms->data_dctn;
  persona.target.key[0] = terms->data_key;
  persona.target.key[1] = terms->control_key;
  persona.remote_index = terms->peer_index;
  persona.remote_token = terms->token;
  persona.held_back = terms->credits - terms->window;
  persona.granted = terms->window;
  base::SeededRandom dice(tokens_);
  Prove(persona, /*lying=*/OneIn(dice, 8), dice);
  persona.state = Persona::State::kUp;
  queue_->Acknowledged(&persona.target);
  ++came_up_;
}

// It answers some calls, some of those well.
void HostilePeer::OnCall(Persona& persona, std::span<const std::byte> message) {
  frame::Header header;
  if (frame::Decode(message, &header) != frame::Fault::kNone) return;
  if (header.kind != frame::Kind::kRequest) return;
  persona.asked.push_back(header.call_id);
  if (persona.asked.size() > kAsked) persona.asked.pop_front();
  if (!script_.manners.answers || persona.state != Persona::State::kUp || !HasCredit(persona)) {
    return;
  }
  base::SeededRandom dice(header.call_id);
  const bool stream = (header.flags & frame::kFlagClientStreams) != 0;
  if (stream || (header.flags & frame::kFlagLarge) != 0 || OneIn(dice, 2)) return;
  const auto payload = message.subspan(frame::kHeaderBytes);
  SendFrame(persona, {.kind = frame::Kind::kReply, .call_id = header.call_id}, payload);
}

frame::Header HostilePeer::Reply(Persona& persona, base::SeededRandom& dice,
                                 std::vector<std::byte>* payload) {
  frame::Header header;
  header.kind = frame::Kind::kReply;
  header.call_id = SomeCall(persona, dice);
  if (OneIn(dice, 4)) header.status_code = static_cast<uint16_t>(dice.Below(20));
  *payload = RandomBytes(OneIn(dice, 2) ? 0 : dice.Below(kMostReply), dice);
  return header;
}

}  // namespace sluice::hostile

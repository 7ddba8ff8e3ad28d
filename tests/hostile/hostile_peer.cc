// SPDX-License-Identifier: Apache-2.0
//
// The process, its connections, and what comes in. hostile_acts.cc has what it does.
#include "tests/hostile/hostile_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/lane/words.h"

namespace sluice::hostile {
namespace {

using softdc::sim::Simulation;

constexpr uint32_t kDataSlots = 1024;
constexpr uint32_t kDataBytes = 4096;
constexpr uint32_t kControlSlots = 512;
constexpr uint32_t kControlBytes = 256;
constexpr uint32_t kReceiveDepth = 1024;
constexpr int64_t kDeadPeerNs = 20 * kMs;
constexpr uint64_t kLentBytes = 256 << 10;
// For a connection to come up.
constexpr int64_t kWaitNs = 100 * kUs;
constexpr uint32_t kMostWaits = 30;

}  // namespace

HostilePeer::HostilePeer(Simulation& simulation, uint32_t node, uint64_t seed,
                         const std::string& server, const std::string& secret)
    : Host(simulation, node, seed),
      server_(server),
      secrets_(secret.empty() ? peer::Secrets() : *peer::Secrets::FromTexts({secret})),
      timers_(simulation.NowNs()) {
  const As as(simulation, node);
  const verbs::VerbsApi& api = device_->api();
  send_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
  receive_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
  control_ = *receive::ReceiveQueue::Create(
      *device_, receive_cq_.get(),
      {.depth = kReceiveDepth, .buffer_bytes = 256, .tag = 0, .access_key = kHostileKey});
  data_ = *receive::ReceiveQueue::Create(
      *device_, receive_cq_.get(),
      {.depth = kReceiveDepth,
       .buffer_bytes = kDataBytes,
       .tag = 1,
       .access_key = kHostileKey,
       .remote_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE});
  memory_ = *memory::Slab::Create(api, device_->pd(),
                                  kDataSlots * kDataBytes + kControlSlots * kControlBytes, 0);
  lent_ = *memory::Slab::Create(
      api, device_->pd(), kLentBytes,
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  slots_.emplace(memory_.data(), kDataSlots, kDataBytes, memory_.data() + kDataSlots * kDataBytes,
                 kControlSlots, kControlBytes);
  queue_ = *queue::DciPool::Create(*device_, send_cq_.get(), *slots_, memory_.lkey(),
                                   {.dead_peer_ns = kDeadPeerNs}, commands_, *this);
  handles_.emplace(api, device_->pd(), /*map=*/false, clock_);
  numbers_.emplace(api, device_->context(), device_->pd(), /*reserve=*/true);
  connections_ = *cm::ConnectionManager::Create(api, {}, *numbers_, commands_, clock_, timers_,
                                                random_, *this);
}

HostilePeer::~HostilePeer() {
  const As as(simulation_, node_);
  commands_.Finish();
  for (auto* all : {&personas_, &retired_}) {
    for (auto& persona : *all) {
      if (persona != nullptr && persona->has_target) queue_->Close(&persona->target);
    }
  }
  queue_.reset();
  connections_.reset();
  for (auto* all : {&personas_, &retired_}) {
    for (auto& persona : *all) {
      if (persona != nullptr && persona->target.ah != nullptr) {
        handles_->Release(persona->target.ah);
      }
    }
  }
  handles_.reset();
  numbers_.reset();
  data_.reset();
  control_.reset();
  memory_ = {};
  lent_ = {};
  send_cq_ = {};
  receive_cq_ = {};
  device_.reset();
}

// ---- The loop

int HostilePeer::Poll() {
  int count = connections_->ReadEvents() + commands_.Drain() + timers_.Advance(now_ns());
  count += queue_->Poll(/*thorough=*/true);
  ibv_wc wc;
  while (ibv_poll_cq(receive_cq_.get(), 1, &wc) > 0) {
    ++count;
    OnReceived(wc);
  }
  for (auto& persona : personas_) {
    if (persona->failed) Retire(*persona);
    if (persona->state != Persona::State::kUp) continue;
    const uint32_t owed = persona->consumed - persona->told;
    const bool say =
        script_.manners.granting == Granting::kAlways
            ? owed * 2 >= script_.manners.window
            : script_.manners.granting == Granting::kSlowly && owed == script_.manners.window;
    if (say) SendControl(*persona, peer::Kind::kCredits);
  }
  if (flooding_until_ns_ > now_ns()) Flood();
  queue_->Flush();
  CleanUp();
  return count;
}

int64_t HostilePeer::SleepLimitNs() {
  const int64_t wake_ns = timers_.NextWakeNs();
  return wake_ns < 0 ? -1 : std::max<int64_t>(wake_ns - now_ns(), 0);
}

void HostilePeer::Play(const Script& script, std::function<void()> over) {
  script_ = script;
  on_over_ = std::move(over);
  for (uint32_t i = 0; i < script.manners.personas; ++i) {
    personas_.push_back(std::make_unique<Persona>());
  }
  After(1, [this] { DoNext(); });
}

bool HostilePeer::AnybodyUp() const {
  return std::any_of(personas_.begin(), personas_.end(),
                     [](const auto& persona) { return persona->state == Persona::State::kUp; });
}

void HostilePeer::DoNext() {
  if (next_ == script_.acts.size()) return End();
  // Acts would go for nothing while nobody is there; a few do, which are of handshakes.
  const Manners& manners = script_.manners;
  const bool waits = manners.returns && manners.establishes && manners.proves && !AnybodyUp() &&
                     next_ >= manners.personas;
  if (waits && ++waited_ % kMostWaits != 0) {
    base::SeededRandom dice(waited_);
    for (uint32_t i = 0; i < manners.personas && !serving_; ++i) {
      if (personas_[i]->state == Persona::State::kNobody) Dial(i, /*lying=*/false, dice);
    }
    Flushed();
    return After(kWaitNs, [this] { DoNext(); });
  }
  const Act& act = script_.acts[next_++];
  Do(act);
  queue_->Flush();
  Flushed();
  // The first ones are dials: the others are of those who are up, if they come up at all.
  const bool settle = next_ == script_.manners.personas;
  After(1 + act.pause_ns + (settle ? kMs : 0), [this] { DoNext(); });
}

void HostilePeer::End() {
  over_ = true;
  switch (script_.ending) {
    case Ending::kGoodbye:
      for (auto& persona : personas_) {
        if (persona->state == Persona::State::kUp) SendControl(*persona, peer::Kind::kGoodbye);
      }
      break;
    case Ending::kHangUp:
      for (auto& persona : personas_) Retire(*persona);
      break;
    case Ending::kSilence:
      Stop();
      break;
    case Ending::kKill:
      Stop();
      simulation_.Kill(node_);
      break;
    case Ending::kPortDown:
      Stop();
      simulation_.PortDown(node_);
      break;
  }
  queue_->Flush();
  on_over_();
}

// ---- Connections

HostilePeer::Persona* HostilePeer::Find(cm::ConnectionId id) {
  for (auto& persona : personas_) {
    if (persona->state != Persona::State::kNobody && persona->connection == id) {
      return persona.get();
    }
  }
  return nullptr;
}

uint32_t HostilePeer::NumberOf(const Persona& persona) const {
  for (uint32_t i = 0; i < personas_.size(); ++i) {
    if (personas_[i].get() == &persona) return i;
  }
  return 0;
}

// Somebody new takes its number; what is under way still names the old one.
void HostilePeer::Retire(Persona& persona) {
  if (persona.state == Persona::State::kNobody) return;
  connections_->Close(persona.connection);
  persona.state = Persona::State::kNobody;
  auto& place = personas_[NumberOf(persona)];
  if (place->has_target) queue_->Close(&place->target);
  retired_.push_back(std::move(place));
  place = std::make_unique<Persona>();
}

void HostilePeer::CleanUp() {
  std::erase_if(retired_, [this](const auto& persona) {
    if (persona->has_target && persona->target.posted != 0) return false;
    if (persona->target.ah != nullptr) handles_->Release(persona->target.ah);
    return true;
  });
}

peer::Terms HostilePeer::Terms(const Persona& persona) const {
  return {.data_dctn = data_->dctn(),
          .max_message_bytes = kDataBytes - uint32_t{peer::kPrefixBytes},
          .data_key = kHostileKey,
          .control_key = kHostileKey,
          .peer_index = NumberOf(persona),
          .token = persona.token,
          .credits = script_.manners.window,
          .window = script_.manners.window,
          .reads = 1,
          .mtu = IBV_MTU_1024,
          .max_large_bytes = 1 << 20};
}

void HostilePeer::OnRequest(cm::ConnectionId id, std::span<const std::byte> hello,
                            const cm::PathInfo& path, const std::string&) {
  if (!serving_) return connections_->Close(id);  // it does not listen
  Welcome(id, hello, path);
}

void HostilePeer::OnResponse(cm::ConnectionId id, std::span<const std::byte> data,
                             const cm::PathInfo& path) {
  Persona* persona = Find(id);
  if (persona == nullptr) return connections_->Close(id);
  const auto welcome = peer::DecodeWelcome(data, persona->hello, secrets_.own(), &persona->keys);
  if (welcome.ok() && !welcome->greeting.without_dc() && !persona->has_target) {
    const auto route = handles_->Acquire(path.ah, 0);
    if (!route.ok()) return connections_->Close(id);
    persona->target.ah = route->handle;
    persona->target.cookie = NumberOf(*persona);
    persona->target.dctn[1] = welcome->greeting.control_dctn;
    persona->target.key[1] = welcome->access.key;
    persona->remote_index = welcome->access.peer_index;
    persona->remote_token = welcome->access.token;
    queue_->Open(&persona->target);
    persona->has_target = true;
    persona->state = Persona::State::kWelcomed;
  }
  if (script_.manners.establishes) connections_->Establish(id);
}

void HostilePeer::OnUp(cm::ConnectionId id) {
  Persona* persona = Find(id);
  if (serving_ || persona == nullptr || persona->state != Persona::State::kWelcomed) return;
  base::SeededRandom unused(0);
  if (script_.manners.proves) Prove(*persona, /*lying=*/false, unused);
}

void HostilePeer::OnDown(cm::ConnectionId id, const absl::Status&, std::span<const std::byte>) {
  Persona* persona = Find(id);
  if (persona != nullptr) Retire(*persona);
}

void HostilePeer::OnTargetFailed(queue::Target* target, const absl::Status&) {
  for (auto& persona : personas_) {
    if (&persona->target == target) persona->failed = true;
  }
}

// ---- What comes in

void HostilePeer::OnReceived(const ibv_wc& wc) {
  receive::ReceiveQueue& queue = wc.wr_id >> 32 == 0 ? *control_ : *data_;
  const auto index = static_cast<uint32_t>(wc.wr_id);
  const std::span<const std::byte> whole(queue.buffer(index), wc.byte_len);
  peer::Prefix prefix;
  if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV &&
      peer::LoadPrefix(whole.data(), whole.size(), &prefix) &&
      prefix.peer_index < personas_.size() && personas_[prefix.peer_index]->token == prefix.token) {
    Persona& persona = *personas_[prefix.peer_index];
    if (persona.state == Persona::State::kUp) persona.granted = prefix.granted - persona.held_back;
    if (prefix.kind == peer::Kind::kData) {
      ++persona.consumed;
      if (serving_) OnCall(persona, whole.subspan(peer::kPrefixBytes));
      if (script_.manners.answers && (prefix.flags & peer::kReportSoon) != 0 &&
          script_.manners.granting == Granting::kAlways) {
        SendControl(persona, peer::Kind::kCredits);
      }
    } else {
      OnControl(persona, prefix, whole.subspan(peer::kPrefixBytes), whole);
    }
  }
  if (script_.manners.reads) queue.Recycle(index);
}

void HostilePeer::OnControl(Persona& persona, const peer::Prefix& prefix,
                            std::span<const std::byte> body, std::span<const std::byte> whole) {
  switch (prefix.kind) {
    case peer::Kind::kProof:
      if (serving_) OnProof(persona, body, whole);
      return;
    case peer::Kind::kAnswer: {
      if (persona.state != Persona::State::kProved) return;
      const auto terms =
          peer::OpenTerms(body, persona.keys.answer, whole.first(peer::kPrefixBytes));
      if (!terms.ok() || terms->refusal != peer::RefusalCode::kNone) return;
      persona.target.dctn[0] = terms->data_dctn;
      persona.target.key[0] = terms->data_key;
      persona.target.key[1] = terms->control_key;
      persona.remote_index = terms->peer_index;
      persona.remote_token = terms->token;
      persona.held_back = terms->credits - terms->window;
      persona.granted = terms->window;
      persona.state = Persona::State::kUp;
      queue_->Acknowledged(&persona.target);
      ++came_up_;
      return;
    }
    case peer::Kind::kProbe:
      if (script_.manners.answers) SendControl(persona, peer::Kind::kCredits);
      return;
    case peer::Kind::kLaneAsk:
      return OnLaneAsk(persona, body);
    case peer::Kind::kGoodbye:
      return Retire(persona);
    default:
      return;
  }
}

void HostilePeer::OnLaneAsk(Persona& persona, std::span<const std::byte> body) {
  const auto ask = lane::LoadAsk(body);
  if (!ask.has_value()) return;
  if (!persona.lane.has_value() || persona.lane->grant().generation != ask->grant.generation) {
    persona.lane.emplace(ask->grant);
  }
  if (!script_.manners.answers) return;
  std::byte answer[lane::kAnswerBytes];
  lane::Store(lane::Answer{.generation = ask->grant.generation,
                           .turn = ask->turn,
                           .mode = ask->mode,
                           .written = persona.lane->written()},
              answer);
  SendControl(persona, peer::Kind::kLaneAnswer, answer);
}

}  // namespace sluice::hostile

// SPDX-License-Identifier: Apache-2.0
//
// One side of a handshake without an endpoint, which can say anything at any step: RDMA_CM, a DCI
// to send with, and a control DCT to receive at.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_RAW_PEER_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_RAW_PEER_H_

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/raw_connector.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/base/random.h"
#include "transport/memory/slab.h"
#include "transport/path/address_handles.h"
#include "transport/peer/handshake.h"
#include "transport/peer/prefix.h"
#include "transport/peer/refusal.h"
#include "transport/peer/secrets.h"
#include "transport/peer/terms.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"

namespace sluice::endpoint {

inline constexpr int64_t kPatienceNs = 20'000'000'000;
inline constexpr char kSecret[] = "a secret for these tests";
inline constexpr char kOther[] = "another one, as good as it";

inline peer::Secrets Shared(const std::string& text = kSecret) {
  return *peer::Secrets::FromTexts({text});
}

inline Options WithSecret() {
  Options options;
  options.secrets = [] { return std::vector<std::string>{kSecret}; };
  // One test's peers all have one address.
  options.failed_handshakes_per_second = 1'000'000;
  // A slow machine reaps nobody; tests of the deadline set their own.
  options.accept_timeout_ns = 600'000'000'000;
  return options;
}

struct RawPeer final : cm::RawConnector, queue::QueueUser {
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotBytes = 256;
  static constexpr uint64_t kControlKey = 0x5eed;

  // `table` outlives it. It posts only the first `first_buffers` of its receive buffers until TakeAll().
  explicit RawPeer(const peer::Secrets& shared = {},
                   const verbs::VerbsApi* table = &softdc::Verbs(),
                   uint32_t first_buffers = UINT32_MAX)
      : RawConnector(table, Patient()), secrets(shared) {
    send_cq = std::move(*verbs::CreateCq(device->api(), device->context(), 1024, nullptr));
    receive_cq = std::move(*verbs::CreateCq(device->api(), device->context(), 1024, nullptr));
    control = std::move(*receive::ReceiveQueue::Create(
        *device, receive_cq.get(),
        {.depth = 64, .first = first_buffers, .buffer_bytes = 256, .access_key = kControlKey}));
    takes = first_buffers == UINT32_MAX;
    memory = std::move(*memory::Slab::Create(device->api(), device->pd(), kSlots * kSlotBytes, 0));
    slots.emplace(memory.data(), 0, kSlotBytes, memory.data(), kSlots, kSlotBytes);
    pool = std::move(*queue::DciPool::Create(*device, send_cq.get(), *slots, memory.lkey(), {},
                                             inline_commands, *this));
    handles.emplace(device->api(), device->pd(), /*map=*/false, clock);
    target.name = "the endpoint under test";
  }
  ~RawPeer() override {
    if (opened) pool->Close(&target);
    // Nothing of ours is under way when a test ends: what was sent has been answered.
    if (target.ah != nullptr) handles->Release(target.ah);
  }

  // One attempt: a server that is slow, on a busy machine, would count a second one as another client.
  static cm::Options Patient() {
    cm::Options options;
    options.resolve_timeout_ns = options.answer_timeout_ns = kPatienceNs;
    return options;
  }

  // ---- Client: connects with these bytes; the welcome is in `response` then.
  void Connect(uint16_t port, peer::Bytes hello_bytes) {
    up = down = false;
    std::copy_n(hello_bytes.begin(), std::min(hello_bytes.size(), hello.size()), hello.begin());
    auto id = manager->Connect("127.0.0.1", port, clock.NowNs() + kPatienceNs, hello_bytes);
    ASSERT_TRUE(id.ok()) << id.status();
    connection = *id;
  }
  peer::Greeting Greet() {
    return {.epoch = 1,
            .secret_id = secrets.own().id,
            .control_dctn = without_dc ? 0 : control->dctn(),
            .nonce = peer::DrawNonce(nonces)};
  }
  peer::HelloMessage Hello(const std::optional<peer::Cookie>& cookie = std::nullopt) {
    peer::Greeting greeting = Greet();
    if (cookie.has_value()) greeting.Bring(*cookie);
    return peer::EncodeHello(greeting, secrets.own());
  }

  // What an honest peer would say.
  peer::Terms Terms() const {
    return {.data_dctn = control->dctn(),
            .max_message_bytes = 4096,
            .data_key = kControlKey,
            .control_key = kControlKey,
            .peer_index = 0,
            .token = 9,
            .credits = 16,
            .window = 16,
            .reads = 1,
            .mtu = static_cast<uint8_t>(device->path().mtu)};
  }
  std::vector<std::byte> Prefix(peer::Kind kind) const {
    std::vector<std::byte> bytes(peer::kPrefixBytes);
    peer::StorePrefix(bytes.data(), {.peer_index = remote_index,
                                     .token = remote_token,
                                     .granted = 16,
                                     .kind = kind,
                                     .flags = 0,
                                     .number = 0});
    return bytes;
  }
  std::vector<std::byte> Sealed(peer::Kind kind, const peer::Terms& terms, const peer::Key& key) {
    std::vector<std::byte> bytes = Prefix(kind);
    const auto sealed = peer::SealTerms(terms, key, bytes);
    bytes.insert(bytes.end(), sealed.begin(), sealed.end());
    return bytes;
  }
  std::vector<std::byte> Proof() { return Sealed(peer::Kind::kProof, Terms(), keys.proof); }

  // To the other side's control DCT.
  void Send(const std::vector<std::byte>& bytes) {
    ASSERT_LE(bytes.size(), kSlotBytes);
    const uint32_t slot = slots->Take(/*control=*/true);
    ASSERT_NE(slot, queue::kNoSlot);
    std::copy(bytes.begin(), bytes.end(), (*slots)[slot].data);
    (*slots)[slot].length_bytes = static_cast<uint32_t>(bytes.size());
    (*slots)[slot].notify = true;
    pool->Post(&target, slot);
    pool->Flush();
    ++under_way;
  }
  // A WRITE of nothing with immediate data, by which the other side hears of it.
  void Announce(const queue::RemoteWrite& write) {
    const uint32_t slot = slots->Take(/*control=*/true);
    ASSERT_NE(slot, queue::kNoSlot);
    (*slots)[slot].length_bytes = 0;
    (*slots)[slot].operation = queue::Operation::kWriteAnnounced;
    (*slots)[slot].write = write;
    (*slots)[slot].notify = true;
    pool->Post(&target, slot);
    pool->Flush();
    ++under_way;
  }

  int Step() {
    pool->Flush();
    int count = Poll() + inline_commands.Drain() + pool->Poll();
    ibv_wc wc;
    while (ibv_poll_cq(receive_cq.get(), 1, &wc) > 0) {
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      const auto index = static_cast<uint32_t>(wc.wr_id);
      const std::byte* bytes = control->buffer(index);
      received.emplace_back(bytes, bytes + wc.byte_len);
      if (takes) control->Recycle(index);
      ++count;
    }
    return count;
  }
  // Posts all receive buffers, and from now on posts each again.
  void TakeAll() {
    takes = true;
    control->Want(control->depth());
  }
  bool Has(peer::Kind kind) const {
    return std::any_of(received.begin(), received.end(), [kind](const auto& bytes) {
      peer::Prefix prefix;
      return peer::LoadPrefix(bytes.data(), static_cast<uint32_t>(bytes.size()), &prefix) &&
             prefix.kind == kind;
    });
  }
  // As a client whose proof was answered: the terms of the answer. Words about credit may have come behind it.
  peer::Terms TakeAnswer() {
    for (const auto& bytes : received) {
      peer::Prefix prefix;
      if (!peer::LoadPrefix(bytes.data(), bytes.size(), &prefix)) continue;
      if (prefix.kind != peer::Kind::kAnswer) continue;
      const peer::Bytes answer = bytes;
      const auto terms = peer::OpenTerms(answer.subspan(peer::kPrefixBytes), keys.answer,
                                         answer.first(peer::kPrefixBytes));
      if (!terms.ok()) ADD_FAILURE() << terms.status();
      if (!terms.ok()) return {};
      remote_index = terms->peer_index;
      remote_token = terms->token;
      return *terms;
    }
    ADD_FAILURE() << "no answer has come";
    return {};
  }
  // As a server: opens the proof that came, and aims at whoever made it.
  void TakeProof() {
    ASSERT_FALSE(received.empty());
    const peer::Bytes proof = received[0];
    const auto terms = peer::OpenTerms(proof.subspan(peer::kPrefixBytes), keys.proof,
                                       proof.first(peer::kPrefixBytes));
    ASSERT_TRUE(terms.ok()) << terms.status();
    const auto greeting = peer::DecodeHello(request);
    ASSERT_TRUE(greeting.ok());
    remote_index = terms->peer_index;
    remote_token = terms->token;
    Aim(request_path, greeting->control_dctn, terms->control_key);
  }

  // ---- cm::User
  void OnResponse(cm::ConnectionId id, std::span<const std::byte> data,
                  const cm::PathInfo& path) override {
    response.assign(data.begin(), data.end());
    auto welcome = peer::DecodeWelcome(data, hello, secrets.own(), &keys);
    if (welcome.ok() && !without_dc) {
      Aim(path, welcome->greeting.control_dctn, welcome->access.key);
      remote_index = welcome->access.peer_index;
      remote_token = welcome->access.token;
    }
    welcomed = welcome.ok();
    manager->Establish(id);
  }
  void OnRequest(cm::ConnectionId id, std::span<const std::byte> data, const cm::PathInfo& path,
                 const std::string&) override {
    connection = id;
    request.assign(data.begin(), data.end());
    request_path = path;
    if (refuse) return manager->Reject(id, refuse());
    if (!change_welcome) return manager->Accept(id, answer);
    peer::ControlAccess access;
    if (!without_dc) access = {.key = kControlKey, .peer_index = 0, .token = 9};
    auto welcome = peer::EncodeWelcome(Greet(), access, data, secrets.own(), &keys);
    answer.assign(welcome.begin(), welcome.end());
    change_welcome(answer);
    manager->Accept(id, answer);
  }
  void Aim(const cm::PathInfo& path, uint32_t dctn, uint64_t key) {
    auto route = handles->Acquire(path.ah, 0);
    ASSERT_TRUE(route.ok()) << route.status();
    target.ah = route->handle;
    target.dctn[1] = dctn;
    target.key[1] = key;
    pool->Open(&target);
    opened = true;
  }
  // ---- queue::QueueUser
  void OnSent(queue::Target*, uint32_t, bool) override { --under_way; }
  void OnTargetReset(queue::Target* target, const absl::Status& why) override {
    failed = failed || !why.ok();
    pool->Resume(target);
  }
  void OnTargetFailed(queue::Target*, const absl::Status&) override { failed = true; }
  void OnUnanswered(queue::Target*) override {}
  void OnTargetQuiet(queue::Target*) override {}
  void OnQueueDead(const absl::Status& why) override { ADD_FAILURE() << why; }

  const peer::Secrets secrets;
  base::SystemRandom nonces;
  poller::InlineCommands inline_commands;
  verbs::Cq send_cq;
  verbs::Cq receive_cq;
  std::unique_ptr<receive::ReceiveQueue> control;
  memory::Slab memory;
  std::optional<queue::SlotTable> slots;
  std::optional<path::AddressHandles> handles;
  std::unique_ptr<queue::DciPool> pool;
  queue::Target target;
  bool without_dc = false;  // what its greetings say
  bool takes = true;        // posts a receive buffer again after its message
  bool opened = false, failed = false, welcomed = false;
  int under_way = 0;

  std::vector<std::vector<std::byte>> received;  // at the control DCT

  cm::ConnectionId connection;
  cm::PathInfo request_path;
  peer::HelloMessage hello = {};
  peer::SessionKeys keys;
  uint32_t remote_index = 0, remote_token = 0;
  // Set: requests are answered with a good welcome, after this had a go at it. Else with `answer`.
  std::function<void(std::vector<std::byte>&)> change_welcome;
  // Set: requests are refused with what it returns.
  std::function<std::vector<std::byte>()> refuse;
};

inline void Drive(Node& node, RawPeer& raw, const std::function<bool()>& done) {
  while (!done()) {
    node.endpoint->Poll();
    raw.Step();
  }
}

// Says hello, and again with a cookie if that is asked for: let in, or refused for good. What was said last.
inline peer::HelloMessage Knock(Node& server, uint16_t port, RawPeer& raw) {
  std::optional<peer::Cookie> cookie;
  for (;;) {
    const peer::HelloMessage hello = raw.Hello(cookie);
    raw.down = false;
    raw.Connect(port, hello);
    Drive(server, raw, [&] { return raw.up || raw.down; });
    const auto asked = peer::CookieIn(raw.reject_data);
    if (raw.up || !asked.has_value() || cookie.has_value()) return hello;
    cookie = asked;
    raw.reject_data.clear();
  }
}

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_RAW_PEER_H_

// SPDX-License-Identifier: Apache-2.0
//
// EndpointImpl: the implementation of Endpoint, in the files of this folder. Private to transport/endpoint.
//
// Ownership     As for Endpoint.
// Threads       As for Endpoint.
#ifndef SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_
#define SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "transport/base/event_log.h"
#include "transport/base/record_table.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/cm/used_names.h"
#include "transport/endpoint/buffer_sizes.h"
#include "transport/endpoint/connect_request.h"
#include "transport/endpoint/create.h"
#include "transport/endpoint/lanes.h"
#include "transport/endpoint/large.h"
#include "transport/endpoint/offers.h"
#include "transport/endpoint/peer.h"
#include "transport/endpoint/reception.h"
#include "transport/endpoint/windows.h"
#include "transport/memory/slab.h"
#include "transport/path/address_handles.h"
#include "transport/path/congestion_profiles.h"
#include "transport/peer/attempt_limiter.h"
#include "transport/peer/cookies.h"
#include "transport/peer/half_open.h"
#include "transport/peer/handshake.h"
#include "transport/peer/keyring.h"
#include "transport/peer/prefix.h"
#include "transport/peer/secret_reader.h"
#include "transport/peer/sweep.h"
#include "transport/peer/terms.h"
#include "transport/peer/window_words.h"
#include "transport/poller/poller.h"
#include "transport/queue/dci_pool.h"
#include "transport/queue/rc_queues.h"
#include "transport/receive/receive_queue.h"

namespace sluice::endpoint {

inline constexpr int kReceiveBatch = 32;

class EndpointImpl final : public Endpoint, private queue::QueueUser, private cm::User {
 public:
  EndpointImpl(const Options& options, device::Device& device, base::Clock& clock,
               base::Random& random, poller::Commands& commands, Handler* handler);
  absl::Status Init();
  ~EndpointImpl() override;

  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override;
  absl::StatusOr<PeerId> Connect(const std::string& host, uint16_t port,
                                 int64_t deadline_ns) override;
  absl::StatusOr<SendBuffer> Reserve(PeerId peer, uint32_t size_bytes) override;
  void Commit(PeerId peer, SendBuffer buffer, uint32_t length_bytes, bool report_soon) override;
  Room TryReserve(PeerId peer, uint32_t size_bytes) override;
  void CommitRoom(PeerId peer, Room room, uint32_t length_bytes, bool report_soon) override;
  SlotRange NeverReleased() const override;
  void Repost(PeerId peer, uint32_t slot) override;
  void Release(uint32_t slot) override {
    if (!slots_->is_cell(slot)) queue_->Release(slot);  // a ring counts acknowledgements
  }
  void Cancel(PeerId peer, SendBuffer buffer) override;
  void Flush() override;
  absl::StatusOr<LargeBuffer> Lend(PeerId peer, uint64_t bytes, bool waits) override;
  std::optional<RemoteMemory> WhereLent(uint32_t number) override;
  void EndLoan(uint32_t number) override;
  absl::StatusOr<uint32_t> Fetch(PeerId peer, const RemoteMemory& from) override;
  void CancelFetch(uint32_t number) override;
  void GiveBack(uint32_t number) override;
  HeldMemory HoldLent(uint32_t number) override;
  bool LendHeld(PeerId peer, const HeldMemory& memory) override;
  HeldMemory HoldFetched(uint32_t number) override;
  int Poll() override;
  void AllowBlocking() override;
  bool PrepareToSleep() override;
  int fd() const override { return poller_->fd(); }
  int64_t SleepLimitNs() const override;
  void Wake() override { poller_->Wake(); }
  absl::StatusOr<PeerReport> Report(PeerId peer) const override;
  HandshakeCounts Handshakes() const override;
  absl::Status Health() const override;
  ConnectionCounts Connections() const override;
  Counters Counts() const override;
  std::vector<QueueReport> Queues() const override;
  void Disconnect(PeerId peer) override;
  void Close() override;

 private:
  // queue::QueueUser
  void OnSent(queue::Target* target, uint32_t slot, bool ok) override;
  void OnTargetReset(queue::Target* target, const absl::Status& why) override;
  void OnControlLost(queue::Target* target) override;
  void OnTargetFailed(queue::Target* target, const absl::Status& why) override;
  void OnUnanswered(queue::Target* target) override;
  void OnTargetQuiet(queue::Target* target) override;
  void OnQueueDead(const absl::Status& why) override;
  // cm::User
  void OnRequest(cm::ConnectionId id, std::span<const std::byte> private_data,
                 const cm::PathInfo& path, const std::string& from) override;
  void OnResponse(cm::ConnectionId id, std::span<const std::byte> private_data,
                  const cm::PathInfo& path) override;
  void OnUp(cm::ConnectionId id) override;
  void OnDown(cm::ConnectionId id, const absl::Status& why,
              std::span<const std::byte> reject_data) override;
  void OnListenerDown(const absl::Status& why) override;

  // device_life.cc
  void CheckDevice();
  void RenewPaths();
  void RenewTargets(const absl::Status& why);
  struct Targets;
  bool IsTarget(const void* object) const;
  std::shared_ptr<Targets> NewTargets();
  void MakeTargets(Targets* made) const;
  void UseTargets(Targets* made, const absl::Status& why);
  void Give(verbs::Qp target);
  void FailAll(const absl::Status& why);

  // endpoint_impl.cc
  absl::Status MakeReceptions();
  absl::Status MakeSendQueues();
  int Progress();
  void TellDowns();
  void DrainCqEvents();
  void PlaceCommands();

  // handshakes.cc
  using Request = ConnectRequest;
  void WithSecrets(std::function<void(const peer::Keyring&)> next);
  void ReadSecrets();
  void DialLater(Peer* peer);
  absl::Status Dial(Peer* peer, const peer::Keyring& secrets);
  bool DialAgain(Peer* peer, peer::Bytes reject_data);
  peer::Cookies& TheCookies();
  bool MayPass(const Request& request, int64_t now_ns);
  bool Strained(const std::string& source);
  void AskForCookie(cm::ConnectionId id, const std::string& source);
  void Admit(const Request& request, const peer::Keyring& secrets);
  static absl::Status CheckSecret(const Request& request, const peer::Keyring& secrets);
  void MakeRoom(const std::string& source, const Reception& reception);
  void Evict(Peer* peer);
  void RefuseFailed(const Request& request, const absl::Status& why, uint64_t* count);
  void LogRefused(const std::string& from, const absl::Status& why);
  void Refuse(cm::ConnectionId id, const absl::Status& why);
  peer::Greeting MakeGreeting(peer::SecretId secret, const Peer& peer);
  peer::Terms OwnTerms(const Peer& peer) const;
  void Adopt(Peer* peer, const peer::Terms& remote);
  void Welcome(Peer* peer);
  void WelcomeWithoutDc(const Request& request, const peer::Secret& secret);
  void SayTerms(Peer* peer);
  bool PostAnswer(Peer* peer);  // false: no control slot is free
  void SayUnsaid();
  void OnHandshakeMessage(Peer* peer, peer::Kind kind, peer::Bytes message);
  void OnProof(Peer* peer, peer::Bytes message);
  void RefuseProof(Peer* peer, const peer::Terms& answer);
  void OnAnswer(Peer* peer, peer::Bytes message);
  void OnHandshakeTimeout(Peer* peer);
  void GoUp(Peer* peer);
  void EndHandshake(Peer* peer);
  void LeaveHalfOpen(Peer* peer);

  // peers.cc
  Peer* Find(PeerId id) const {
    if (id.index >= peers_.size()) return nullptr;
    Peer* peer = &peers_[id.index];
    return peer->generation == id.generation && peer->state != peer::State::kFree ? peer : nullptr;
  }
  // Returns null if the peer is not up.
  Peer* FindUp(PeerId id) const {
    Peer* peer = Find(id);
    return peer != nullptr && peer->state == peer::State::kUp ? peer : nullptr;
  }
  Peer* FindByConnection(cm::ConnectionId id) const;
  absl::StatusOr<Peer*> NewPeer(peer::Event event, uint32_t tenant);
  Reception& ReceptionOf(const Peer& peer) { return receptions_[peer.tenant]; }
  void Bind(Peer* peer, cm::ConnectionId connection);
  void AcquirePath(Peer* peer, const cm::PathInfo& path);
  void OnPath(Peer* peer, const absl::StatusOr<path::Route>& route, bool wrong_place);
  void Fail(Peer* peer, const absl::Status& why);
  void TellDown(Peer* peer, const absl::Status& why);
  void EndLater(Peer* peer);
  void EndPeers();
  void Part(Peer* peer);
  void FreeIfQuiet(Peer* peer);
  void SayGoodbye(Peer* peer);
  bool IsLastWord(const Peer& peer, uint32_t slot) const;
  void SetTimer(Peer* peer, int64_t deadline_ns);
  void EndPassage(Peer* peer);
  static void OnPeerTimeout(base::Timer* timer, void* context);

  // rc_peers.cc
  absl::Status CheckRcOptions() const;
  bool IsOfPeer(const ibv_wc& wc, const Peer& peer) const;
  void MakeQueueToDial(Peer* peer);
  void AcquireQueue(Peer* peer, const cm::PathInfo& path);
  void AllowAccess(Peer* peer);
  void EndSender(const ibv_wc& wc);
  void EndSender(Peer* peer);
  int EndQueues();
  static std::string UnlikeTransports(bool server_rc);

  // keepalive.cc
  static int64_t RoundNs(const Options& options);
  int64_t AnswerRoundNs() const;
  static void OnSweepTime(base::Timer* timer, void* context);
  void StartSweep();
  void LookAtPeers();
  void LookAt(Peer* peer, bool heard_all);
  void OnProbe(Peer* peer);

  // messages.cc, control_slots.cc
  receive::ReceiveQueue& QueueOf(const ibv_wc& wc) const;
  int Receive();
  // Takes all available completions. Returns false if there are none.
  bool TakeArrivals();
  bool arrivals_taken() const { return arrivals_next_ != arrivals_end_; }
  // Handles all messages that have arrived. Returns false if messages still arrive after kMaxLastLooks rounds.
  bool ReceiveAll();
  void OnReceived(const ibv_wc& wc);
  void OnData(Peer* peer, const std::byte* bytes, uint32_t size_bytes);
  // Passes a message to the handler. It counts as taken before the call, so that a reply from inside the handler acknowledges it.
  // Returns false if the peer is no longer up, or its record belongs to another peer.
  bool Deliver(Peer* peer, PeerId id, const std::byte* bytes, uint32_t size_bytes) {
    peer->receive.Consumed();
    const bool taken = closed_ || handler_->OnMessage(id, {bytes, size_bytes});
    if (peer->generation != id.generation || peer->state != peer::State::kUp) return false;
    if ((!taken || peer->receive.overdrawn()) && !Judge(peer, taken)) return false;
    if (peer->report_requested_by_peer || peer->receive.ReportIsDue()) QueueCreditReport(peer);
    return true;
  }
  // After a message that was not new, or from a peer that has used more than its credit. Returns false if this ends the peer.
  bool Judge(Peer* peer, bool taken);
  void OnGoodbye(Peer* peer);
  void OnReport(Peer* peer);
  void RequestReports();
  void TakeGrant(Peer* peer, uint32_t granted);
  void QueueCreditReport(Peer* peer);
  void Block(Peer* peer);
  bool MayTakeBuffer(PeerId id);
  int TellWritable();
  bool SomeoneMayWrite() const;
  void SendCredits();
  uint32_t TakeControl(const Peer& peer, uint32_t most = kFewControlSlots);
  void SayControl();
  size_t ControlWaiting() const;
  // These return false if TakeControl() finds no slot. A broken target drops the message although they return true: OnSent() reports
  // the drop if `notify` is set, and TellResends() repeats messages that must arrive.
  bool PostControl(Peer* peer, peer::Kind kind, bool notify, uint32_t most = kFewControlSlots);
  bool PostBody(Peer* peer, peer::Kind kind, peer::Bytes body);
  bool PostTerms(Peer* peer, peer::Kind kind, const peer::Terms& terms, const peer::Key& key,
                 bool notify);
  void WritePrefix(Peer* peer, uint32_t slot, peer::Kind kind, bool report_soon = false,
                   uint16_t number = 0) {
    WritePrefix(peer, (*slots_)[slot].data, kind, report_soon, number);
  }
  void WritePrefix(Peer* peer, std::byte* at, peer::Kind kind, bool report_soon,
                   uint16_t number) const {
    peer->report_requested_by_peer = false;  // the prefix contains the report
    peer::StorePrefix(at, {.peer_index = peer->remote_index,
                           .token = peer->remote_token,
                           .granted = peer->receive.Report(nominal_window_),
                           .kind = kind,
                           .flags = report_soon ? peer::kReportSoon : uint8_t{0},
                           .number = number});
  }
  bool Hear(Peer* peer, const peer::Prefix& prefix);

  // credit_check.cc. Returns false if the peer was ended because it sent too much at once.
  bool CountArrival(Peer* peer, bool data) {
    const bool within = data ? peer->receive.DataArrived(look_, nominal_window_)
                             : peer->receive.ControlArrived(look_, peer->remote_window);
    if (!within) EndFlood(peer, data);
    return within;
  }
  void EndFlood(Peer* peer, bool data);
  void EndOverdrawn(Peer* peer);
  void EndOffender(Peer* peer, const std::string& cause);

  // windows.cc, window_turns.cc
  PeerWindows& WindowsOf(const Peer* peer);
  void FirstWindow(Peer* peer);
  void EndWindows(Peer* peer);
  void OnWindowWord(Peer* peer, peer::Kind kind, peer::Bytes body);
  void OnWindowAsk(Peer* peer, const peer::WindowWord& word);
  void OnWindowGrant(Peer* peer, const peer::WindowWord& word);
  void OnWindowRecall(Peer* peer, const peer::WindowWord& word);
  void OnWindowReturn(Peer* peer, const peer::WindowWord& word);
  void EndWindowOffender(Peer* peer, const std::string& cause);
  bool BeginReturn(Peer* peer, uint32_t sent);
  void AskForWindow(Peer* peer);
  void AskForWindowAgain(Peer* peer);
  bool MayReturnWindow(const Peer& peer, const PeerWindows& windows) const;
  void ReturnWindow(Peer* peer, PeerWindows* windows);
  void ResizeSendWindow(Peer* peer, uint32_t in_use);
  void OweWindowWord(Peer* peer, PeerWindows* windows);
  void SayWindowWords();
  bool SayWindowWords(Peer* peer, PeerWindows* windows);
  void RepeatWindowWords(Peer* peer);
  void LeaveLine(Reception* reception, PeerWindows* windows);
  Peer* WaiterAt(PeerId id);
  void MoveWindows();
  void SettleReturns();
  void GrantWindows(Reception* reception);
  void RecallWindows(Reception* reception);
  void Recall(Reception* reception, Peer* peer);
  Peer* HolderToRecall(const Reception& reception, uint32_t looks, bool or_first);
  bool LaneIsUsed(const Peer& peer);
  void WatchReturn(Peer* peer, PeerWindows* windows);
  void StartWindowTimer(int64_t delay_ns);
  void LookForReturns();
  void LookForReturn(Peer* peer, PeerWindows* windows, int64_t now_ns);

  // renewal.cc
  void RenewTenant(uint32_t tenant);
  void UseRenewed(uint32_t tenant, std::array<absl::StatusOr<receive::Target>, 2>& made);
  void OweTargets(Peer* peer);
  void SayTargets();
  bool LookAtRenewal(uint32_t tenant);
  static void OnRenewTime(base::Timer* timer, void* context);
  void OnTargets(Peer* peer, peer::Bytes body);
  void OnTargetsTaken(Peer* peer, peer::Bytes body);

  // lane_grants.cc
  void CountForLane(Peer* peer, uint32_t token);
  void WantLane(Peer* peer);
  void MakeLane(Peer* peer, uint32_t slots, uint64_t size_bytes);
  void OnLaneMade(InLane* lane, const absl::Status& status);
  void CloseIdleLane();
  void LoseLane(InLane* lane);
  void FreeLane(InLane* lane, bool made = true);
  void ReleaseLane(InLane* lane);
  void EndLanes(Peer* peer);

  // lanes_in.cc
  static bool InTurn(const Peer& peer, uint16_t number);
  int LookAtLanes();
  int Drain(Peer* peer, InLane* lane);
  uint32_t TakeRun(Peer* peer, InLane* lane, uint32_t most);
  bool TakeNext(Peer* peer, InLane* lane);
  bool TakeHeld(Peer* peer);
  void OnSentData(Peer* peer, uint16_t number, const ibv_wc& wc);
  bool AfterLane(Peer* peer, uint16_t number);
  void OnAnnounced(const ibv_wc& wc);
  static absl::Status LaneGarbage(const Peer& peer, const char* what);

  // lane_sleep.cc
  void AskOf(InLane* lane, lane::Mode mode);
  void OnLaneAnswer(Peer* peer, peer::Bytes body);
  void StartLaneRound();
  static void OnLaneTime(base::Timer* timer, void* context);
  void LookForAnswers();
  void Hush(InLane* lane);
  void HushAll();
  int64_t NapNs() const;
  void CheckEmpty(InLane* lane);

  // lanes_out.cc
  PeerLanes& LanesOf(const Peer* peer) { return *peer_lanes_[peer->lanes - 1]; }
  void NeedLanes(Peer* peer);
  void WriteIntoLane(Peer* peer, queue::Slot* slot);
  void OnLaneAsk(Peer* peer, peer::Bytes body);
  void OweLaneWords(Peer* peer);
  void SayLaneWords();
  bool SayLaneWords(Peer* peer);
  void RenewLaneWords(Peer* peer);

  // send_rings.cc
  void MakeRings(std::byte* memory);
  void OpenRing(Peer* peer, OutLane* out);
  // Closes the ring of a lane. `write_rest`: messages without a request are written. Otherwise their owner sends them again.
  void CloseRing(OutLane* out, bool write_rest);
  SendRing& RingOf(uint32_t slot);
  SendRing* RingTo(const Peer& peer) { return peer.ring == 0 ? nullptr : &rings_[peer.ring]; }
  [[gnu::noinline]] absl::StatusOr<SendBuffer> ReserveSlowly(Peer* peer, PeerId id,
                                                             uint32_t size_bytes);
  [[gnu::noinline]] Room TryReserveSlowly(Peer* peer, PeerId id, uint32_t size_bytes);
  Room ReserveCell(Peer* peer, SendRing* ring, uint32_t size_bytes) {
    const auto message_bytes = static_cast<uint32_t>(size_bytes + peer::kPrefixBytes);
    ring->reserved = true;
    peer->send.Use();
    queue::Slot& cell = (*slots_)[ring->slot()];
    std::byte* const message = ring->PlaceOf(message_bytes);
    cell.data = ring->reserved_message = message;
    cell.length_bytes = ring->reserved_bytes = message_bytes;
    return {
        .data = message + peer::kPrefixBytes, .capacity_bytes = size_bytes, .slot = ring->slot()};
  }
  // Returns whether the next message to the peer can use the ring. Closes the ring if the device keeps all its cells.
  bool MayReserveCell(const Peer& peer, SendRing* ring, uint32_t message_bytes);
  void CommitSlot(Peer* peer, uint32_t slot, uint32_t length_bytes, bool report_soon);
  void CommitCell(Peer* peer, uint32_t slot, uint32_t length_bytes, bool report_soon);
  // Writes prefix and stamp of the message in the reserved cell, and adds it to the batch.
  void AddToBatch(Peer* peer, SendRing* ring, std::byte* message, uint32_t message_bytes,
                  bool asks) {
    ring->reserved = false;
    WritePrefix(peer, message, peer::Kind::kData, asks, peer->committed++);
    ring->out->writer.StampWhole(message, message_bytes);
    ++ring->batch;
    ++ring->used;
    ++ring->next;
    ++counters_.messages_sent;
    ++counters_.lane_sent;
  }
  // Like AddToBatch(), for a message that may begin or end a batch, request a report, or find the lane full.
  void JoinBatch(Peer* peer, SendRing* ring, bool report_soon);
  bool BeginBatch(const Peer* peer, SendRing* ring);
  void EndBatch(SendRing* ring);
  void ShortenCell(queue::Slot* slot, uint32_t message_bytes);
  void SendCell(Peer* peer, uint32_t slot, bool report_soon);
  bool RetireCells(SendRing* ring);
  bool LeaveRing(SendRing* ring);
  void CancelCell(Peer* peer, uint32_t slot);
  // Updates the number of posted messages that the peer has not acknowledged. Messages of an unwritten batch are not posted yet.
  void CountUnacknowledged(Peer* peer) {
    const uint32_t under_way = peer->send.under_way(peer->remote_window);
    const SendRing* ring = RingTo(*peer);
    const uint32_t unwritten = ring == nullptr ? 0 : ring->batch;
    peer->target.unacknowledged = under_way - std::min(under_way, unwritten);
  }
  void WriteCells(SendRing* ring);
  void WriteAllCells();
  void ReclaimRings();
  // Returns whether to request a report now. False: a request is outstanding, and a further request follows its report.
  static bool MustAsk(Peer* peer) {
    peer->report_needed = peer->report_requested;
    const bool ask = !peer->report_requested;
    peer->report_requested = 1;
    return ask;
  }

  // large.cc
  static bool IsForLarge(const queue::Target& target) { return (target.cookie & kForLarge) != 0; }
  Peer& PeerOf(const queue::Target& target) { return peers_[target.cookie & ~kForLarge]; }
  static uint64_t Owner(PeerId peer) { return uint64_t{peer.generation} << 32 | peer.index; }
  void MakeLargeMemory();
  PeerLarge& LargeOf(const Peer& peer);
  void EndLarge(Peer* peer);
  bool ForgetLarge(const Peer& peer);
  void OnPiece(queue::Target* target, uint32_t slot, bool ok);
  void ResumeLarge(queue::Target* target);
  int MoveLarge();
  bool BeginFetch(uint32_t number);
  bool IsOverFetchShare(const FetchRecord& fetch);
  void Discharge(FetchRecord* fetch);
  void PostPieces(uint32_t number);
  static void OnLargeTime(base::Timer* timer, void* context);
  void LookAtFetches();
  void WaitToLend(PeerId peer, bool of_share);
  bool SomebodyWaitsToLend() const;
  void TellLend();
  void CollectHeld();
  bool PrepareHeldToSleep();
  void FreeLent(uint32_t number);

  // resend.cc
  void TellResends();
  void ResendToCrowded();
  void RepeatLostControl();
  void RepeatControl(Peer* peer);
  static void OnAskTime(base::Timer* timer, void* context);
  void AskBlocked();
  static void OnWatchTime(base::Timer* timer, void* context);
  void StartWatch();
  void TellSlowRetries();

  // Constant after Init().
  const Options options_;
  device::Device& device_;
  const verbs::VerbsApi& api_;
  base::Clock& clock_;
  base::Random& random_;
  poller::Commands& commands_;
  Handler* handler_;
  base::EventLog log_;
  const uint64_t epoch_;
  absl::Status no_credit_;  // created once: Reserve() returns them often
  absl::Status no_buffer_;
  const uint32_t nominal_window_;  // of each peer at this side (docs/decisions/0067)

  // In the order of creation; destroyed in reverse.
  base::TimerWheel timers_;
  std::unique_ptr<poller::Poller> poller_;
  verbs::CompChannel completions_;
  verbs::Cq receive_cq_;
  verbs::Cq send_cq_;
  std::vector<Reception> receptions_;                  // one per tenant, or one for all peers
  std::vector<receive::ReceiveQueue*> queues_by_tag_;  // of each: data, then control
  memory::Slab send_memory_;
  std::unique_ptr<LargeMemory> lent_;  // null: no large messages
  std::unique_ptr<LargeMemory> fetched_;
  Holds held_lent_{[this] { Wake(); }};
  Holds held_fetched_{[this] { Wake(); }};
  std::optional<queue::SlotTable> slots_;
  std::optional<path::AddressHandles> handles_;
  std::unique_ptr<queue::SendQueues> queue_;  // the object of dcis_ or rc_
  queue::DciPool* dcis_ = nullptr;            // null: the device has RC queue pairs instead
  queue::RcQueues* rc_ = nullptr;             // null: it has DC
  std::optional<path::CongestionProfiles> profiles_;
  std::optional<cm::QpnPool> numbers_;
  std::unique_ptr<cm::ConnectionManager> connections_;

  std::vector<std::unique_ptr<InLane>> lanes_;  // by number
  std::vector<uint32_t> free_lanes_;
  std::vector<std::unique_ptr<PeerLanes>> peer_lanes_;  // index: Peer::lanes - 1
  std::vector<uint16_t> free_peer_lanes_;               // values for Peer::lanes
  // Has stable addresses after Init(). Peers without a ring use the first ring, which is never free.
  std::vector<SendRing> rings_;
  std::vector<uint32_t> free_rings_;
  std::vector<uint32_t> closed_rings_;   // closed, and not free yet
  SendRing* unwritten_rings_ = nullptr;  // linked list: may have a batch
  lane::Watch watch_;
  bool draining_ = false;  // Drain() is running
  uint64_t lane_bytes_ = 0;
  bool lanes_wanted_ = false;
  uint16_t period_ = 0;  // for lane::Heat
  uint32_t period_messages_ = 0, lane_generations_ = 0;
  int64_t hushed_ns_ = -1;  // time since which lanes prevent a long sleep; -1: they do not
  std::vector<std::byte> lane_message_;  // copy of the message that is being handled
  std::vector<PeerId> lane_words_;       // peers to which a lane message is due

  absl::flat_hash_map<uint32_t, std::unique_ptr<PeerLarge>> large_of_;  // by the peer's index
  std::vector<FetchRecord> fetches_;
  std::vector<uint32_t> free_fetches_;
  std::deque<uint32_t> fetching_;    // served round-robin
  std::vector<Piece> pieces_;        // by bulk slot
  std::deque<LendWait> lend_waits_;  // longest wait in front
  PeerId lend_turn_;                 // peer that TellLend() calls OnWritable() for
  uint64_t fetch_bytes_ = 0;         // sum of FetchRecord::charged of all fetches
  bool large_work_ = false;          // MoveLarge() has something to do
  bool fetch_look_ = false;          // MoveLarge() must call LookAtFetches()

  base::RecordTable<Peer> peers_;
  std::vector<uint32_t> free_peers_;
  std::vector<uint32_t> peer_of_connection_;  // by the connection's index
  WindowBooks windows_;
  std::deque<Peer*> blocked_;
  // A peer was refused a buffer, and not every peer in blocked_ has had a turn since.
  bool short_of_buffers_ = false;
  PeerId turn_;                // the peer whose OnWritable() is being called
  uint32_t turn_buffers_ = 0;  // rest of its share of the free buffers
  std::vector<Peer*> credit_reports_;
  std::vector<Peer*> report_queue_;   // peers that may need a further request for a report
  std::vector<PeerId> owed_targets_;  // peers to which the new targets of their tenant are due
  std::deque<Peer*> unsaid_;          // peers whose proof or answer waits for a control slot
  std::vector<Down> resends_;         // peers for which OnResend() is due, with the cause
  std::vector<Down> crowded_;         // likewise, delayed: their control queues are full
  std::vector<PeerId> lost_control_;  // peers that may not have received a control message
  std::vector<Down> downs_;
  std::vector<Peer*> ending_;                    // draining peers that EndPeers() looks at
  std::shared_ptr<peer::SecretReader> secrets_;  // null: no secrets
  std::vector<std::function<void(const peer::Keyring&)>> awaiting_secrets_;
  bool reading_secrets_ = false;
  peer::AttemptLimiter limiter_;
  peer::HalfOpen half_open_;
  std::optional<peer::Cookies> cookies_;               // created when first needed
  std::shared_ptr<cm::UsedNames> used_hellos_;         // shared by endpoints that share cookies
  std::shared_ptr<const peer::Keyring> last_secrets_;  // of the last read; not null after Init()
  Offers offers_;
  peer::Sweep sweep_;
  base::Timer sweep_timer_;  // armed while peers are up
  base::Timer ask_timer_;    // armed while peers wait for credit
  base::Timer crowd_timer_;  // armed while crowded_ is not empty
  base::Timer watch_timer_;  // armed while completions are outstanding
  bool slow_retries_told_ = false;
  base::Timer lane_timer_;    // armed while peers are asked to announce, or to leave a lane
  base::Timer large_timer_;   // armed while fetches are in progress
  base::Timer renew_timer_;   // armed while the replacement of a tenant's targets runs, or is due
  base::Timer window_timer_;  // armed while windows are recalled, by either side
  bool someone_up_ = false;   // a peer was up in this round of the sweep
  HandshakeCounts handshakes_;
  uint32_t peer_count_ = 0, ups_ = 0, beginners_ = 0;  // all; are or were up; the rest
  absl::Status ended_;  // not OK: the device or a queue has failed, and the endpoint is unusable
  bool closed_ = false, may_block_ = false;  // may_block_: AllowBlocking() was called
  bool look_at_fds_ = true;  // the next Poll() checks descriptors: after a sleep or a command
  bool receiving_ = false;
  std::unique_ptr<ibv_wc[]> arrivals_;  // of the last look; as many as fit into the receive CQ
  uint32_t arrivals_size_ = 0, arrivals_next_ = 0, arrivals_end_ = 0;
  uint16_t look_ = 0;  // number of the last look; never 0 after the first look
  uint32_t passes_ = 0;
  Counters counters_;
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_ENDPOINT_IMPL_H_

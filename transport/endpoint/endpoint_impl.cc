// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/endpoint_impl.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "transport/base/error.h"
#include "transport/device/own_address.h"
#include "transport/endpoint/memory_need.h"
#include "transport/peer/refusal.h"

namespace sluice::endpoint {
namespace {

// Number of passes between two checks of the descriptors, and of the time, while the thread polls without sleep and no command ends.
constexpr uint32_t kDescriptorPeriod = 1024;
constexpr uint32_t kTimerPeriod = 32;
// Close() waits until goodbyes are sent: maximum number of checks, and maximum time of each check.
constexpr int kCloseLooks = 100;
constexpr int kCloseLookMs = 10;

// Returns the error of an option that is too large for the shared receive queues of the device.
absl::Status BeyondDevice(const device::Device& device, const char* option, uint32_t value,
                          uint32_t most) {
  return base::Error(
      absl::StatusCode::kInvalidArgument,
      "option " + std::string(option) + " is " + std::to_string(value),
      {.layer = "endpoint",
       .operation = "create",
       .cause = "it must be at most " + std::to_string(most) + " on " + device.name() +
                ", whose shared receive queues hold " + std::to_string(device.limits().max_srq_wr) +
                " requests (max_srq_wr)",
       .remedy = "lower the option, or use several endpoints"});
}

}  // namespace

std::shared_ptr<cm::RequestDesk> MakeRequestDesk() { return std::make_shared<cm::RequestDesk>(); }

absl::StatusOr<std::unique_ptr<Endpoint>> CreateEndpoint(const Options& options,
                                                         device::Device& device, base::Clock& clock,
                                                         base::Random& random,
                                                         poller::Commands& commands,
                                                         Handler* handler) {
  absl::Status status = options.Validate();
  if (!status.ok()) return status;
  auto endpoint = std::make_unique<EndpointImpl>(options, device, clock, random, commands, handler);
  status = endpoint->Init();
  const auto detail = base::DetailOf(status);
  if (detail.has_value() && detail->operation() == memory::kRegisterOperation) {
    const MemoryNeed need = NeedOf(options, device.rc());
    status = base::Prefix(
        status, "an endpoint with these options registers " + MebibytesOf(need.at_start_bytes) +
                    " when it is created, and up to " + MebibytesOf(need.later_bytes) + " later");
  }
  if (!status.ok()) return base::Prefix(status, "can't create an endpoint on " + device.name());
  return endpoint;
}

EndpointImpl::EndpointImpl(const Options& options, device::Device& device, base::Clock& clock,
                           base::Random& random, poller::Commands& commands, Handler* handler)
    : options_(options),
      device_(device),
      api_(device.api()),
      clock_(clock),
      random_(random),
      commands_(commands),
      handler_(handler),
      log_("endpoint", options.log, &clock),
      epoch_(random.Next64()),
      no_credit_(base::Error(absl::StatusCode::kResourceExhausted, "no credit to send to this peer",
                             {.layer = "endpoint",
                              .operation = "send",
                              .cause = "the peer has not read the messages sent so far",
                              .remedy = "wait for OnWritable",
                              .retry_safe = true})),
      no_buffer_(base::Error(absl::StatusCode::kResourceExhausted, "no send buffer is free",
                             {.layer = "endpoint",
                              .operation = "send",
                              .cause = "all send buffers are in flight",
                              .remedy = "wait for OnWritable, or raise send_buffers",
                              .retry_safe = true})),
      nominal_window_(std::min(options.credits_per_peer, peer::ReceiveCredits::kMaxWindow)),
      timers_(clock.NowNs()),
      limiter_(options.failed_handshakes_per_second),
      half_open_(options.max_half_open),
      sweep_(RoundNs(options)),
      sweep_timer_(OnSweepTime, this),
      ask_timer_(OnAskTime, this),
      crowd_timer_([](base::Timer*,
                      void* context) { static_cast<EndpointImpl*>(context)->ResendToCrowded(); },
                   this),
      watch_timer_(OnWatchTime, this),
      lane_timer_(OnLaneTime, this),
      large_timer_(OnLargeTime, this),
      renew_timer_(OnRenewTime, this),
      window_timer_([](base::Timer*,
                       void* context) { static_cast<EndpointImpl*>(context)->LookForReturns(); },
                    this) {}

absl::Status EndpointImpl::Init() {
  std::vector<peer::SecretSource> sources;
  for (const Tenant& tenant : options_.tenants) sources.push_back(tenant.secrets);
  if (options_.secrets) sources.push_back(options_.secrets);
  absl::Status status;
  if (!sources.empty()) {
    secrets_ = std::make_shared<peer::SecretReader>(std::move(sources));
    // Reads the secrets once here, so that the creator gets their errors.
    last_secrets_ = secrets_->Read(clock_);
    status = last_secrets_->Check();
    if (!status.ok()) return status;
  } else {
    last_secrets_ = std::make_shared<const peer::Keyring>(peer::Keyring({}));
  }
  used_hellos_ =
      options_.desk != nullptr ? options_.desk->used() : std::make_shared<cm::UsedNames>();
  if (!device_.passed_over().empty()) {
    log_.Say(base::Severity::kWarning, "device passed over", "",
             device_.name() +
                 " is used, which reaches this host only: no mlx5 device can be used (" +
                 device_.passed_over() + "); see sluice_info --check");
  }
  auto poller = poller::Poller::Create();
  if (!poller.ok()) return poller.status();
  poller_ = std::move(*poller);

  device_.UsePathMtu(options_.path_mtu_bytes);
  auto channel = verbs::CreateCompChannel(api_, device_.context());
  if (!channel.ok()) return channel.status();
  completions_ = std::move(*channel);
  const int flags = fcntl(completions_->fd, F_GETFL);
  if (flags < 0 || fcntl(completions_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::ErrnoError(errno, "fcntl(completion channel)", {.layer = "endpoint"});
  }

  status = device_.rc() ? CheckRcOptions() : absl::OkStatus();
  if (status.ok()) status = MakeReceptions();
  if (!status.ok()) return status;
  const bool ordered = !device_.rc() || device_.rc_write_order() != verbs::DataOrder::kNone;
  lanes_wanted_ = options_.lane_memory_bytes != 0 && (ordered || options_.lanes_without_order);
  const size_t stride_bytes = SendStrideBytes(options_);
  const size_t data_bytes = stride_bytes * options_.send_buffers;
  const size_t control_bytes = size_t{kControlSlots} * kControlBufferBytes;
  auto slab = memory::Slab::Create(api_, device_.pd(),
                                   data_bytes + control_bytes + SendRingsBytes(options_), 0);
  if (!slab.ok()) return slab.status();
  send_memory_ = std::move(*slab);
  slots_.emplace(send_memory_.data(), options_.send_buffers, stride_bytes,
                 send_memory_.data() + data_bytes, kControlSlots, kControlBufferBytes,
                 options_.max_large_bytes != 0 ? kLargeSlots : 0,
                 SendRings(options_) * SendRingCells(options_));
  MakeRings(send_memory_.data() + data_bytes + control_bytes);
  if (options_.max_large_bytes != 0) MakeLargeMemory();

  const verbs::CapabilityReport& can = device_.capabilities();
  handles_.emplace(api_, device_.pd(), can.Has(verbs::Feature::kAhMapping), clock_,
                   path::HandleLimits{}, device_.path());
  status = MakeSendQueues();
  if (!status.ok()) return status;
  profiles_.emplace(api_, device_.context(), device_.pd(), device_.path(),
                    can.Has(verbs::Feature::kEce), dcis_ == nullptr ? 0 : dcis_->template_qpn());
  profiles_->OnEvict([this](uint32_t template_qpn) { handles_->Forget(template_qpn); });

  numbers_.emplace(api_, device_.context(), device_.pd(), can.Has(verbs::Feature::kReservedQpn));
  cm::Options cm_options;
  cm_options.max_connections = 0;
  // Includes connections in timewait, so a cap on queue pairs does not lower it.
  for (const Tenant& tenant : options_.tenants) cm_options.max_connections += 2 * tenant.max_peers;
  if (options_.tenants.empty()) cm_options.max_connections = 2 * options_.max_peers;
  cm_options.accept_timeout_ns = options_.accept_timeout_ns;
  cm_options.local_ece = device_.ece();
  cm_options.device = device_.name();
  cm_options.port = device_.path().port;
  cm_options.type_of_service = device_.path().traffic_class;
  cm_options.only_this_host = device_.passed_over();
  cm_options.own_address = [this] { return device::OwnAddress(device_); };
  cm_options.wrong_place = [](const std::string& why) {
    return peer::EncodeRefusal(peer::RefusalCode::kPlace, why);
  };
  cm_options.is_wrong_place = [](std::span<const std::byte> words) {
    return peer::IsRefusalWith(words, peer::RefusalCode::kPlace);
  };
  cm_options.desk = options_.desk;
  auto connections = cm::ConnectionManager::Create(api_, cm_options, *numbers_, commands_, clock_,
                                                   timers_, random_, *this);
  if (!connections.ok()) return connections.status();
  connections_ = std::move(*connections);

  status = poller_->Watch(connections_->fd(), [this] { connections_->ReadEvents(); });
  if (status.ok() && connections_->seat_fd() >= 0) {
    status = poller_->Watch(connections_->seat_fd(), [this] { connections_->ReadEvents(); });
  }
  if (status.ok()) status = poller_->Watch(completions_->fd, [this] { DrainCqEvents(); });
  if (status.ok()) status = poller_->Watch(device_.async_fd(), [this] { CheckDevice(); });
  // Each pass drains the commands. The descriptor only wakes a sleeping thread.
  if (status.ok() && commands_.fd() >= 0) status = poller_->Watch(commands_.fd(), [] {});
  return status;
}

// The CQ is as deep as the number of completions that can be in it, so that it can't overrun.
absl::Status EndpointImpl::MakeSendQueues() {
  const uint32_t depth =
      device_.rc() ? slots_->size() : (options_.dci_count + 1) * options_.dci_depth;
  auto cq = verbs::CreateCq(api_, device_.context(), depth, completions_.get());
  if (!cq.ok()) return cq.status();
  send_cq_ = std::move(*cq);
  if (device_.rc()) {
    queue::QueueUser& user = *this;
    auto queues = std::make_unique<queue::RcQueues>(
        device_, send_cq_.get(), *slots_, send_memory_.lkey(),
        queue::RcOptions{.dead_peer_ns = options_.dead_peer_ns}, commands_, user);
    rc_ = queues.get();
    queue_ = std::move(queues);
    return absl::OkStatus();
  }
  auto pool = queue::DciPool::Create(device_, send_cq_.get(), *slots_, send_memory_.lkey(),
                                     {.dci_count = options_.dci_count,
                                      .send_depth = options_.dci_depth,
                                      .dead_peer_ns = options_.dead_peer_ns,
                                      .use_streams = options_.use_streams},
                                     commands_, *this);
  if (!pool.ok()) return pool.status();
  dcis_ = pool->get();
  queue_ = std::move(*pool);
  return absl::OkStatus();
}

absl::Status EndpointImpl::MakeReceptions() {
  if (options_.tenants.empty()) {
    receptions_.push_back({.srq_size = options_.srq_size, .max_peers = options_.max_peers});
  }
  for (const Tenant& tenant : options_.tenants) {
    receptions_.push_back(
        {.tenant = tenant.name, .srq_size = tenant.srq_size, .max_peers = tenant.max_peers});
  }
  if (device_.rc()) {
    const uint32_t cap = options_.max_rc_queue_pairs;
    receptions_.front().CapQueuePairs(cap != 0 ? cap : std::max(device_.limits().max_qp, 1u));
  }
  const uint32_t most = device_.limits().max_srq_wr;
  const auto control_depth = [most](const Reception& reception) {
    return std::min(ControlDepth(reception.max_peers), most);
  };
  for (const Reception& one : receptions_) {
    if (device_.rc() && RcDepth(one.srq_size, one.max_peers) > most) {
      // DataDepth() adds a few buffers, and control messages need up to as many again.
      const uint32_t more = DataDepth(0);
      return BeyondDevice(device_, "srq_size (limits.receive_buffers)", one.srq_size,
                          (most - std::min(most, more)) / 2);
    }
    if (DataDepth(one.srq_size) > most) {
      return BeyondDevice(device_, "srq_size (limits.receive_buffers)", one.srq_size,
                          most - std::min(most, DataDepth(0)));
    }
  }
  // The CQ is as deep as the number of receive buffers, so that it can't overrun.
  uint32_t depth = 0;
  for (const Reception& one : receptions_) {
    depth += device_.rc() ? RcDepth(one.srq_size, one.max_peers)
                          : DataDepth(one.srq_size) + control_depth(one);
  }
  auto cq = verbs::CreateCq(api_, device_.context(), depth, completions_.get());
  if (!cq.ok()) return cq.status();
  receive_cq_ = std::move(*cq);
  arrivals_size_ = depth;
  arrivals_ = std::make_unique_for_overwrite<ibv_wc[]>(depth);
  const auto make = [this](const Reception& reception, uint32_t depth, uint32_t first,
                           uint32_t buffer_bytes, int remote_access) {
    return receive::ReceiveQueue::Create(device_, receive_cq_.get(),
                                         {.depth = depth,
                                          .first = first,
                                          .buffer_bytes = buffer_bytes,
                                          .tag = static_cast<uint32_t>(queues_by_tag_.size()),
                                          .access_key = random_.Next64(),
                                          .dct = !device_.rc(),
                                          .remote_access = remote_access,
                                          .domain = reception.domain.get()});
  };
  if (device_.rc()) {
    // A queue pair has one protection domain and one receive queue for all messages of a peer.
    Reception& reception = receptions_.front();
    const uint32_t all = RcDepth(reception.srq_size, reception.max_peers);
    auto queue = make(reception, all, all, BufferBytes(options_), 0);
    if (!queue.ok()) return queue.status();
    reception.data = std::move(*queue);
    queues_by_tag_.push_back(reception.data.get());
    return absl::OkStatus();
  }
  for (Reception& reception : receptions_) {
    auto domain = verbs::AllocPd(api_, device_.context());
    if (!domain.ok()) return domain.status();
    reception.domain = std::move(*domain);
    // More buffers are posted when they are promised (Reception::Promise), and control buffers when peers come (Reception::Add).
    const uint32_t first =
        std::max(Reception::kSpareBuffers,
                 static_cast<uint32_t>(Reception::kSpareBytes / BufferBytes(options_)));
    auto queue = make(reception, DataDepth(reception.srq_size), first, BufferBytes(options_),
                      (options_.lane_memory_bytes != 0 ? IBV_ACCESS_REMOTE_WRITE : 0) |
                          (options_.max_large_bytes != 0 ? IBV_ACCESS_REMOTE_READ : 0));
    if (!queue.ok()) return queue.status();
    reception.data = std::move(*queue);
    queues_by_tag_.push_back(reception.data.get());
    reception.holders.reserve(std::min(reception.srq_size, reception.max_peers));
    const uint32_t control = control_depth(reception);
    queue = make(reception, control, 0, kControlBufferBytes, 0);
    if (!queue.ok()) return queue.status();
    reception.control = std::move(*queue);
    queues_by_tag_.push_back(reception.control.get());
  }
  return absl::OkStatus();
}

EndpointImpl::~EndpointImpl() {
  if (connections_ != nullptr) Close();
  // Commands in progress use the objects below. Their results are dropped.
  commands_.Finish();
  if (secrets_ != nullptr) secrets_->Close();  // a command may still read secrets
  held_lent_.Leave([this](uint32_t number) { return lent_->Abandon(number); });
  held_fetched_.Leave(
      [this](uint32_t number) { return fetched_->Abandon(fetches_[number].buffer); });
  for (base::Timer* timer : {&sweep_timer_, &ask_timer_, &crowd_timer_, &watch_timer_, &lane_timer_,
                             &large_timer_, &renew_timer_, &window_timer_}) {
    timers_.Cancel(timer);
  }
  for (size_t i = 0; i < peers_.size(); ++i) EndPassage(&peers_[i]);
}

int EndpointImpl::Poll() {
  int count = 0;
  ++passes_;
  if (look_at_fds_ || passes_ % kDescriptorPeriod == 0) {
    const bool slept = look_at_fds_;
    look_at_fds_ = false;
    count += poller_->Check();
    if (slept) count += timers_.Advance(clock_.NowNs());
  }
  if (passes_ % kTimerPeriod == 0) {
    StartWatch();
    if (timers_.size() != 0) count += timers_.Advance(clock_.NowNs());
  }
  return count + Progress();
}

void EndpointImpl::AllowBlocking() { may_block_ = true; }

// Commands run in Poll() from the beginning of a peer, if there is no other peer, until it is up; and while the endpoint closes. Elsewhere
// they run on the helper: they may take long, and other peers and calls must not wait for them.
void EndpointImpl::PlaceCommands() {
  commands_.RunInDrain(may_block_ && (closed_ || (ups_ == 0 && beginners_ == 1)));
}

// Runs the part of a pass that checks neither descriptors nor timers.
int EndpointImpl::Progress() {
  int count = commands_.Drain();
  // A command of RDMA_CM often causes an event at once. The next pass reads it.
  if (count != 0) look_at_fds_ = true;
  count += Receive();
  if (rc_ != nullptr && rc_->stopping()) count += EndQueues();
  if (!watch_.empty()) count += LookAtLanes();
  count += queue_->Poll();
  if (!resends_.empty()) TellResends();
  if (!lost_control_.empty()) RepeatLostControl();
  if (!blocked_.empty() || short_of_buffers_) count += TellWritable();
  if (windows_.work != WindowWork::kNone) MoveWindows();
  if (!windows_.words.empty()) SayWindowWords();
  if (!credit_reports_.empty()) SendCredits();
  if (!report_queue_.empty()) RequestReports();
  if (!unsaid_.empty()) SayUnsaid();
  if (!owed_targets_.empty()) SayTargets();
  if (!lane_words_.empty()) SayLaneWords();
  if (held_lent_.changed() || held_fetched_.changed()) CollectHeld();
  if (large_work_) count += MoveLarge();
  if (!ending_.empty()) EndPeers();
  if (!downs_.empty()) {
    count += static_cast<int>(downs_.size());
    TellDowns();
  }
  Flush();
  if (!closed_rings_.empty()) ReclaimRings();
  return count;
}

void EndpointImpl::TellDowns() {
  std::vector<Down> now;
  now.swap(downs_);  // a handler may cause more
  for (const Down& down : now) {
    if (!closed_) handler_->OnPeerDown(down.id, down.why);
    Peer& peer = peers_[down.id.index];
    peer.down_due = 0;
    if (peer.state == peer::State::kFree) free_peers_.push_back(down.id.index);
  }
}

void EndpointImpl::Flush() {
  if (unwritten_rings_ != nullptr) WriteAllCells();
  queue_->Flush();
}

bool EndpointImpl::PrepareToSleep() {
  for (receive::ReceiveQueue* queue : queues_by_tag_) queue->Refill();
  const size_t waiting = ControlWaiting();
  HushAll();
  if (ControlWaiting() != 0) SayControl();
  const uint32_t free_control = slots_->free_control();
  Flush();
  ibv_req_notify_cq(receive_cq_.get(), 0);
  const bool armed = queue_->busy();
  if (armed) ibv_req_notify_cq(send_cq_.get(), 0);
  look_at_fds_ = true;
  // A completion between the last poll and the arming raises no event. It is kept for Poll(), because
  // only Poll() calls the handler.
  if (!arrivals_taken()) TakeArrivals();
  const int sent = queue_->Poll(/*thorough=*/true);
  if (queue_->completions_due()) {
    StartWatch();
  } else {
    timers_.Cancel(&watch_timer_);
  }
  if (blocked_.empty()) timers_.Cancel(&ask_timer_);
  if (rc_ != nullptr && rc_->stopping()) return false;  // the next pass destroys the queue pairs
  return PrepareHeldToSleep() && !large_work_ && !arrivals_taken() && sent == 0 && downs_.empty() &&
         ending_.empty() && resends_.empty() && lost_control_.empty() && unsaid_.empty() &&
         windows_.work != WindowWork::kNow && !SomeoneMayWrite() &&
         // No message that waited could be sent, and no slot was freed since. Completions free slots, and wake a sleeping thread.
         ControlWaiting() == waiting && slots_->free_control() == free_control &&
         (waiting == 0 || armed);
}

int64_t EndpointImpl::SleepLimitNs() const {
  const int64_t nap_ns = NapNs();
  const int64_t wake_ns = timers_.NextWakeNs();
  if (wake_ns < 0) return nap_ns;
  const int64_t left_ns = std::max<int64_t>(wake_ns - clock_.NowNs(), 0);
  return nap_ns < 0 ? left_ns : std::min(left_ns, nap_ns);
}

void EndpointImpl::DrainCqEvents() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (api_.get_cq_event(completions_.get(), &cq, &context) == 0) api_.ack_cq_events(cq, 1);
}

void EndpointImpl::Close() {
  if (closed_) return;
  closed_ = true;
  PlaceCommands();
  look_at_fds_ = true;
  Poll();  // a peer that has disconnected needs no goodbye
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].state != peer::State::kFree) Disconnect(peers_[i].id());
  }
  TellDowns();  // calls no handler, because closed_ is set
  Flush();
  const auto someone_is_leaving = [this] {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i].state == peer::State::kLeaving) return true;
    }
    return false;
  };
  for (int look = 0; look < kCloseLooks && someone_is_leaving(); ++look) {
    look_at_fds_ = true;
    if (Poll() == 0) {
      pollfd sleeper = {poller_->fd(), POLLIN, 0};
      if (queue_->busy()) {
        ibv_req_notify_cq(send_cq_.get(), 0);
        if (Progress() != 0) continue;
      }
      poll(&sleeper, 1, kCloseLookMs);
    }
  }
  EndPeers();
  // From now on nobody polls. What has been submitted runs now, if this thread may block, and what follows runs on the helper.
  while (may_block_ && commands_.Drain() != 0) {
  }
  commands_.RunInDrain(false);
}

}  // namespace sluice::endpoint

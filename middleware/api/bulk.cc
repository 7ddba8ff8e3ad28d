// SPDX-License-Identifier: Apache-2.0
//
// A port belongs to one thread. Calls of other threads are tasks, which that thread runs between its passes.
#include "middleware/api/bulk.h"

#include <poll.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "middleware/api/end_refused.h"
#include "middleware/api/fork_count.h"
#include "middleware/api/own_copy.h"
#include "middleware/bulk/port.h"
#include "transport/base/clock.h"
#include "transport/base/error.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/device/tables.h"
#include "transport/poller/commands.h"

namespace sluice {
namespace {

constexpr int kSpinPasses = 2000;  // idle passes before a sleep

absl::Status Gone(std::string_view what) {
  return base::Error(absl::StatusCode::kUnavailable, what,
                     {.layer = "bulk", .operation = "await", .remedy = "join the two sides again"});
}

absl::Status InDone() {
  return base::Error(absl::StatusCode::kFailedPrecondition, "bulk call refused",
                     {.layer = "bulk",
                      .operation = "call",
                      .cause = "a `done` of this Bulk makes it, and would wait for itself",
                      .remedy = "note it, and make the call on another thread"});
}

}  // namespace

class Bulk::Impl final : public bulk::PortUser {
 public:
  using Done = absl::AnyInvocable<void(const absl::Status&)>;

  explicit Impl(std::unique_ptr<device::Device> device) : device_(std::move(device)) {}
  ~Impl() override {
    if (OnItsThread()) {
      internal::EndRefused("Bulk", "a `done` of its own", "destroy the object on another thread");
    }
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    if (port_ != nullptr) port_->Wake();
    if (thread_.joinable()) thread_.join();
    commands_.Finish();
    port_.reset();
  }

  absl::Status Init(const bulk::PortOptions& options) {
    auto port = bulk::Port::Create(*device_, clock_, random_, commands_, *this, options);
    if (!port.ok()) return port.status();
    port_ = *std::move(port);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  bool InForkedChild() const { return creator_.InForkedChild(); }

  // Runs `task` on the port's thread, and returns its result. Blocks.
  template <typename T>
  T Do(std::function<T(bulk::Port&)> task) {
    if (Refuses()) return Refusal();
    std::promise<T> promise;
    auto answer = promise.get_future();
    Submit([&] { promise.set_value(task(*port_)); });
    return answer.get();
  }

  absl::StatusOr<Lent> Lend(std::span<std::byte> memory, uint8_t rights, absl::Duration time,
                            bulk::PeerId peer) {
    if (Refuses()) return Refusal();
    std::promise<absl::StatusOr<Lent>> promise;
    auto answer = promise.get_future();
    Submit([&] {
      const int64_t now_ns = clock_.NowNs();
      const int64_t time_ns = absl::ToInt64Nanoseconds(time);
      // If the end is later than the clock can count, the lease has no end.
      const int64_t end_ns = time_ns > INT64_MAX - now_ns ? 0 : now_ns + time_ns;
      const auto lease = peer == bulk::PeerId{} ? port_->leases().Lend(memory, rights, end_ns)
                                                : port_->Lend(memory, rights, end_ns, peer);
      if (!lease.ok()) return promise.set_value(lease.status());
      lending_.emplace_back(*lease, std::move(promise));
    });
    return answer.get();
  }

  absl::Status Return(bulk::LeaseId lease) {
    if (Refuses()) return Refusal();
    std::promise<absl::Status> promise;
    auto answer = promise.get_future();
    Submit([&] {
      const absl::Status status = port_->leases().Return(lease);
      // The lease may have expired a moment ago. Then wait for its end too.
      if (!status.ok() && !port_->leases().IsEnding(lease)) return promise.set_value(status);
      returning_.emplace_back(lease, std::move(promise));
    });
    return answer.get();
  }

  absl::StatusOr<bulk::TransferId> Start(bulk::PeerId peer, const bulk::TransferRequest& request,
                                         Done done) {
    return Do<absl::StatusOr<bulk::TransferId>>([&](bulk::Port& port) {
      auto transfer = port.Start(peer, request);
      if (transfer.ok()) transfers_.emplace(*transfer, std::move(done));
      return transfer;
    });
  }

  absl::StatusOr<bulk::Arrival> Await(bulk::PeerId peer, uint64_t tag, absl::Duration timeout) {
    if (Refuses()) return Refusal();
    // Limit the timeout, so that `until` does not overflow.
    const absl::Duration counted = std::min(timeout, absl::Hours(24 * 365));
    const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(counted);
    std::unique_lock lock(mutex_);
    absl::StatusOr<bulk::Arrival> result =
        base::Error(absl::StatusCode::kDeadlineExceeded, "no transfer with that tag came in time",
                    {.layer = "bulk",
                     .operation = "await",
                     .cause = "the other side is slow, or began none",
                     .remedy = "look at how it ended there, or wait longer"});
    arrived_.wait_until(lock, until, [&] {
      const auto found = kept_.find(KeyOf(peer));
      if (found == kept_.end()) return false;
      Kept& kept = found->second;
      const auto arrival = std::find_if(kept.arrivals.begin(), kept.arrivals.end(),
                                        [tag](const auto& one) { return one.tag == tag; });
      if (arrival == kept.arrivals.end()) {
        if (kept.gone) result = Gone("the peer is down");
        return kept.gone;
      }
      result = *std::move(arrival);
      kept.arrivals.erase(arrival);
      if (kept.gone) --gone_arrivals_;
      return true;
    });
    return result;
  }

  const std::string& device_choice() const { return device_->choice(); }
  bulk::PortCounters counters() const {
    if (InForkedChild()) return {};
    const std::lock_guard lock(mutex_);
    return counted_;
  }

  void OnLent(bulk::LeaseId lease, const absl::StatusOr<bulk::Capability>& capability) override {
    for (auto it = lending_.begin(); it != lending_.end(); ++it) {
      if (it->first != lease) continue;
      if (capability.ok()) {
        it->second.set_value(Lent{lease, ToBytes(*capability)});
      } else {
        it->second.set_value(OwnCopy(capability.status()));
      }
      lending_.erase(it);
      return;
    }
  }
  void OnReturned(bulk::LeaseId lease) override {
    for (auto it = returning_.begin(); it != returning_.end();) {
      if (it->first != lease) {
        ++it;
        continue;
      }
      it->second.set_value(absl::OkStatus());
      it = returning_.erase(it);
    }
  }
  void OnTransferred(bulk::TransferId transfer, const absl::Status& status) override {
    auto node = transfers_.extract(transfer);
    if (!node.empty()) node.mapped()(status);
  }
  void OnArrival(bulk::PeerId peer, const bulk::Arrival& arrival) override {
    const std::lock_guard lock(mutex_);
    auto& arrivals = kept_[KeyOf(peer)].arrivals;
    arrivals.push_back(arrival);
    arrivals.back().status = OwnCopy(arrival.status);
    if (arrivals.size() > kMaxKeptArrivals) arrivals.pop_front();
    arrived_.notify_all();
  }
  void OnPeerDown(bulk::PeerId peer, const absl::Status&) override {
    const std::lock_guard lock(mutex_);
    Kept& kept = kept_[KeyOf(peer)];
    kept.gone = true;
    gone_.push_back(KeyOf(peer));
    gone_arrivals_ += kept.arrivals.size();
    CutGone();
    arrived_.notify_all();
  }

 private:
  // Returns whether this is the port's thread. Blocking functions would wait for themselves there.
  bool OnItsThread() const { return thread_.get_id() == std::this_thread::get_id(); }
  // Return whether no function may be called here, and the reason.
  bool Refuses() const { return InForkedChild() || OnItsThread(); }
  absl::Status Refusal() const {
    return InForkedChild() ? internal::Creator::Refuse("bulk object", "call") : InDone();
  }

  using Key = std::pair<uint32_t, uint32_t>;
  static Key KeyOf(bulk::PeerId peer) { return {peer.index, peer.generation}; }
  // Arrivals of one peer that no Await() has taken.
  struct Kept {
    std::deque<bulk::Arrival> arrivals;
    bool gone = false;  // the peer is down
  };

  // Call with mutex_ locked. A peer that goes down adds at most kMaxKeptArrivals, so the peer with the most arrivals has enough
  // arrivals to drop.
  void CutGone() {
    if (gone_.size() > kMaxKeptArrivals) {
      const auto eldest = kept_.find(gone_.front());
      gone_arrivals_ -= eldest->second.arrivals.size();
      kept_.erase(eldest);
      gone_.pop_front();
    }
    if (gone_arrivals_ <= kMaxKeptArrivals) return;
    std::deque<bulk::Arrival>* most = nullptr;
    for (const Key& key : gone_) {
      auto& arrivals = kept_.at(key).arrivals;
      if (most == nullptr || arrivals.size() > most->size()) most = &arrivals;
    }
    const size_t surplus = gone_arrivals_ - kMaxKeptArrivals;
    most->erase(most->begin(), most->begin() + static_cast<std::ptrdiff_t>(surplus));
    gone_arrivals_ -= surplus;
  }

  void Submit(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    port_->Wake();
  }

  // Spins while there is work, then sleeps on the port's descriptor. No task is missed: Submit() queues a task before it wakes the
  // port, and this thread checks for tasks after PrepareToSleep().
  void Run() {
    int quiet = 0;
    std::vector<std::function<void()>> now;
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        now.swap(tasks_);
        counted_ = port_->counters();
      }
      for (const auto& task : now) task();
      const bool idle = port_->Poll() == 0;  // also after tasks, which may never end
      quiet = now.empty() && idle ? quiet + 1 : 0;
      now.clear();
      if (quiet < kSpinPasses || !port_->PrepareToSleep()) continue;
      {
        const std::lock_guard lock(mutex_);
        if (stopping_ || !tasks_.empty()) continue;
        counted_ = port_->counters();
      }
      const int64_t limit_ns = port_->SleepLimitNs();
      pollfd sleeper = {port_->fd(), POLLIN, 0};
      const timespec limit = {limit_ns / 1'000'000'000, limit_ns % 1'000'000'000};
      ppoll(&sleeper, 1, limit_ns < 0 ? nullptr : &limit, nullptr);
      quiet = 0;
    }
  }

  const internal::Creator creator_;
  const std::unique_ptr<device::Device> device_;
  base::RealClock clock_;
  base::SystemRandom random_;
  poller::ThreadCommands commands_;
  std::unique_ptr<bulk::Port> port_;  // used by thread_, as the next three members
  std::list<std::pair<bulk::LeaseId, std::promise<absl::StatusOr<Lent>>>> lending_;
  std::list<std::pair<bulk::LeaseId, std::promise<absl::Status>>> returning_;
  absl::flat_hash_map<bulk::TransferId, Done> transfers_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;           // notified for Await()
  std::vector<std::function<void()>> tasks_;  // mutex_
  std::map<Key, Kept> kept_;                  // mutex_
  std::deque<Key> gone_;                      // mutex_; peers in kept_ that are down, oldest first
  size_t gone_arrivals_ = 0;                  // mutex_; number of arrivals of these peers
  bulk::PortCounters counted_;                // mutex_
  bool stopping_ = false;                     // mutex_
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Bulk>> Bulk::Create(const BulkOptions& options) {
  if (!std::has_single_bit(options.path_mtu) || options.path_mtu < 256 || options.path_mtu > 4096) {
    return base::Error(absl::StatusCode::kInvalidArgument,
                       "option path_mtu is " + std::to_string(options.path_mtu),
                       {.layer = "bulk",
                        .operation = "create",
                        .cause = "allowed is 256, 512, 1024, 2048 or 4096",
                        .remedy = "change the value"});
  }
  auto device = device::Device::Open(options.device, device::AllTables());
  if (!device.ok()) return device.status();
  if (absl::Status status = (*device)->UsePath(options.path); !status.ok()) return status;
  (*device)->UsePathMtu(options.path_mtu);
  auto impl = std::make_unique<Impl>(*std::move(device));
  absl::Status status = impl->Init(options.port);
  if (!status.ok()) return status;
  return std::unique_ptr<Bulk>(new Bulk(std::move(impl)));
}

Bulk::Bulk(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bulk::~Bulk() {
  // The queues belong to the parent, and the threads do not exist in the child: nothing is destroyed there.
  if (impl_->InForkedChild()) (void)impl_.release();
}

absl::StatusOr<bulk::PeerId> Bulk::Offer(std::string* ticket, bulk::Reach reach) {
  return impl_->Do<absl::StatusOr<bulk::PeerId>>(
      [&](bulk::Port& port) { return port.Offer(ticket, reach); });
}

absl::StatusOr<bulk::PeerId> Bulk::Accept(std::string_view ticket, std::string* answer,
                                          bulk::Reach reach) {
  return impl_->Do<absl::StatusOr<bulk::PeerId>>(
      [&](bulk::Port& port) { return port.Accept(ticket, answer, reach); });
}

absl::Status Bulk::Complete(bulk::PeerId peer, std::string_view ticket) {
  return impl_->Do<absl::Status>([&](bulk::Port& port) { return port.Complete(peer, ticket); });
}

absl::StatusOr<Bulk::Lent> Bulk::Lend(std::span<std::byte> memory, uint8_t rights,
                                      absl::Duration time, bulk::PeerId peer) {
  return impl_->Lend(memory, rights, time, peer);
}

absl::Status Bulk::Return(bulk::LeaseId lease) { return impl_->Return(lease); }

absl::StatusOr<bulk::TransferId> Bulk::Start(bulk::PeerId peer,
                                             const bulk::TransferRequest& request,
                                             absl::AnyInvocable<void(const absl::Status&)> done) {
  return impl_->Start(peer, request, std::move(done));
}

absl::Status Bulk::Cancel(bulk::TransferId transfer) {
  return impl_->Do<absl::Status>([&](bulk::Port& port) { return port.Cancel(transfer); });
}

absl::Status Bulk::Move(bulk::PeerId peer, const bulk::TransferRequest& request) {
  std::promise<absl::Status> promise;
  auto answer = promise.get_future();
  auto transfer = impl_->Start(peer, request, [&promise](const absl::Status& status) {
    promise.set_value(OwnCopy(status));
  });
  if (!transfer.ok()) return transfer.status();
  return answer.get();
}

absl::StatusOr<bulk::Arrival> Bulk::Await(bulk::PeerId peer, uint64_t tag, absl::Duration timeout) {
  return impl_->Await(peer, tag, timeout);
}

absl::Status Bulk::Health() {
  return impl_->Do<absl::Status>([](bulk::Port& port) { return OwnCopy(port.Health()); });
}

bulk::PortCounters Bulk::counters() const { return impl_->counters(); }
const std::string& Bulk::device_choice() const { return impl_->device_choice(); }

}  // namespace sluice

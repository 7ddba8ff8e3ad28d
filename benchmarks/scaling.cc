// SPDX-License-Identifier: Apache-2.0
//
// scaling [--quick] [svg file]
// One host's send queues to many peers on the simulated fabric, in virtual time: messages a second and the time until they
// arrive, over DCIs x streams x peers. Each peer has four messages under way: when one is acknowledged the next is sent.
// docs/scaling.md shows the result and says what is assumed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/scaling_plot.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/memory/slab.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::benchmarks {
namespace {

using queue::Target;
using softdc::sim::Simulation;

constexpr uint32_t kWindow = 4;      // messages to a peer under way
constexpr uint32_t kMaxHosts = 200;  // peers share them
constexpr uint32_t kBufferBytes = 64;
constexpr int64_t kLookNs = 100;           // from a completion until the program looks
constexpr int64_t kAcknowledgeNs = 1'000;  // the way back
constexpr uint64_t kKey = 42;

// What a message says.
struct Message {
  uint32_t peer;
  uint32_t slot;
  int64_t sent_ns;
};

class Scene final : private queue::QueueUser, private softdc::sim::Observer {
 public:
  Scene(const ScalingPoint& point, uint64_t messages)
      : messages_(messages), warm_up_(uint64_t{2} * kWindow * point.peers), peers_(point.peers) {
    softdc::sim::Options network;
    network.nodes = std::min(point.peers, kMaxHosts) + 1;
    network.arena_bytes = uint64_t{32} << 20;
    network.dials.streams.max_log_concurrent =
        static_cast<uint8_t>(std::lround(std::log2(point.streams)));
    network.dials.streams.max_log_errored =
        std::min<uint8_t>(4, network.dials.streams.max_log_concurrent);
    simulation_ = Simulation::Create(network).value();
    commands_ = std::make_unique<cm::SimCommands>(*simulation_, 0, random_, [this] { LookSoon(); });
    for (uint32_t host = 0; host < network.nodes; ++host) {
      const Simulation::As as(*simulation_, host);
      hosts_.push_back(std::make_unique<Host>());
      hosts_.back()->device = *device::Device::Open("softdc0", {&Simulation::Verbs()});
      if (host != 0) Receive(*hosts_.back(), 2 * kWindow * (point.peers / (network.nodes - 1) + 1));
    }
    const Simulation::As as(*simulation_, 0);
    device::Device& own = *hosts_[0]->device;
    cq_ = *verbs::CreateCq(own.api(), own.context(), 1 << 16, nullptr);
    const uint32_t data_slots = std::max(1'024u, kWindow * point.peers);
    memory_ = *memory::Slab::Create(own.api(), own.pd(), size_t{data_slots + 1} * kBufferBytes, 0);
    slots_ = std::make_unique<queue::SlotTable>(memory_.data(), data_slots, kBufferBytes,
                                                memory_.data() + size_t{data_slots} * kBufferBytes,
                                                1, kBufferBytes);
    pool_ = *queue::DciPool::Create(
        own, cq_.get(), *slots_, memory_.lkey(),
        {.dci_count = point.dcis, .send_depth = 1'024, .max_log_streams = 6}, *commands_, *this);
    for (uint32_t host = 1; host < network.nodes; ++host) AddAddress(host);
    for (uint32_t peer = 0; peer < point.peers; ++peer) {
      const uint32_t host = 1 + peer % (network.nodes - 1);
      Target& target = peers_[peer];
      target.ah = hosts_[host]->address.get();
      target.dctn[0] = target.dctn[1] = hosts_[host]->receive->dctn();
      target.key[0] = target.key[1] = kKey;
      target.cookie = peer;
      pool_->Open(&target);
      pool_->Acknowledged(&target);  // it has answered before
    }
    simulation_->SetObserver(this);
  }
  ~Scene() override {
    simulation_->SetObserver(nullptr);
    const Simulation::As as(*simulation_, 0);
    commands_->Finish();
    pool_.reset();
    for (auto& host : hosts_) host->address = {};
    memory_ = {};
    cq_.reset();
  }

  void Go(ScalingPoint* point) {
    {
      const Simulation::As as(*simulation_, 0);
      for (uint32_t i = 0; i < kWindow; ++i) {
        for (uint32_t peer = 0; peer < peers_.size(); ++peer) Send(peer);
      }
      pool_->Flush();
    }
    simulation_->RunUntil([&] { return arrived_ >= warm_up_ + messages_; }, INT64_MAX / 2);
    std::sort(took_ns_.begin(), took_ns_.end());
    point->messages_per_second = 1e9 * static_cast<double>(took_ns_.size()) /
                                 static_cast<double>(simulation_->NowNs() - start_ns_);
    point->p50_ns = took_ns_[took_ns_.size() / 2];
    point->p99_ns = took_ns_[took_ns_.size() * 99 / 100];
  }

 private:
  struct Host {
    std::unique_ptr<device::Device> device;
    verbs::Cq cq;
    std::unique_ptr<receive::ReceiveQueue> receive;
    verbs::Ah address;
    bool look_due = false;
  };

  static void Receive(Host& host, uint32_t depth) {
    host.cq = *verbs::CreateCq(host.device->api(), host.device->context(), 2 * depth, nullptr);
    host.receive = *receive::ReceiveQueue::Create(
        *host.device, host.cq.get(),
        {.depth = depth, .buffer_bytes = kBufferBytes, .access_key = kKey});
  }
  void AddAddress(uint32_t host) {
    device::Device& own = *hosts_[0]->device;
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = own.path().sgid_index;
    attr.grh.hop_limit = 64;
    attr.grh.dgid = Simulation::Gid(host);
    hosts_[host]->address = {&own.api(), own.api().create_ah(own.pd(), &attr)};
  }

  void Send(uint32_t peer) {
    const uint32_t index = slots_->Take(/*control=*/false);
    const Message message{peer, index, simulation_->NowNs()};
    std::memcpy((*slots_)[index].data, &message, sizeof(message));
    (*slots_)[index].length_bytes = kBufferBytes;
    ++peers_[peer].unacknowledged;
    pool_->Post(&peers_[peer], index);
  }
  void OnAcknowledged(uint32_t peer, uint32_t slot) {
    const Simulation::As as(*simulation_, 0);
    pool_->Release(slot);
    --peers_[peer].unacknowledged;
    pool_->Acknowledged(&peers_[peer]);
    owed_.push_back(peer);
    LookSoon();
  }
  void LookSoon() {
    if (look_due_) return;
    look_due_ = true;
    simulation_->After(kLookNs, [this] { Look(); });
  }
  // Of the sender.
  void Look() {
    look_due_ = false;
    const Simulation::As as(*simulation_, 0);
    commands_->Drain();
    while (pool_->Poll(/*thorough=*/true) != 0) {
    }
    for (; !owed_.empty() && slots_->free_data() != 0; owed_.pop_front()) Send(owed_.front());
    pool_->Poll();
    pool_->Flush();
  }
  void LookAt(uint32_t number) {
    const Simulation::As as(*simulation_, number);
    Host& host = *hosts_[number];
    host.look_due = false;
    ibv_wc completions[32];
    for (int count; (count = ibv_poll_cq(host.cq.get(), 32, completions)) > 0;) {
      for (int i = 0; i < count; ++i) {
        const auto index = static_cast<uint32_t>(completions[i].wr_id);
        Message message;
        std::memcpy(&message, host.receive->buffer(index), sizeof(message));
        host.receive->Recycle(index);
        OnArrived(message);
      }
    }
    host.receive->Refill();
  }
  void OnArrived(const Message& message) {
    if (++arrived_ == warm_up_) start_ns_ = simulation_->NowNs();
    if (arrived_ > warm_up_) took_ns_.push_back(simulation_->NowNs() - message.sent_ns);
    simulation_->After(kAcknowledgeNs, [this, peer = message.peer, slot = message.slot] {
      OnAcknowledged(peer, slot);
    });
  }

  void OnActivity(uint32_t node, softdc::sim::Activity) override {
    if (node == 0) return LookSoon();
    if (hosts_[node]->look_due) return;
    hosts_[node]->look_due = true;
    simulation_->After(0, [this, node] { LookAt(node); });
  }
  void OnSent(Target*, uint32_t, bool) override {}
  // Nothing fails here.
  void OnTargetReset(Target*, const absl::Status& why) override { Abort(why); }
  void OnTargetFailed(Target*, const absl::Status& why) override { Abort(why); }
  void OnUnanswered(Target*) override {}
  void OnTargetQuiet(Target*) override {}
  void OnQueueDead(const absl::Status& why) override { Abort(why); }
  [[noreturn]] static void Abort(const absl::Status& why) {
    std::fprintf(stderr, "scaling: %s\n", why.ToString().c_str());
    std::abort();
  }

  const uint64_t messages_;
  const uint64_t warm_up_;
  base::SeededRandom random_{1};
  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<cm::SimCommands> commands_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Target> peers_;
  verbs::Cq cq_;
  memory::Slab memory_;
  std::unique_ptr<queue::SlotTable> slots_;
  std::unique_ptr<queue::DciPool> pool_;
  std::deque<uint32_t> owed_;  // peers that one more message is to be sent to
  bool look_due_ = false;
  uint64_t arrived_ = 0;
  int64_t start_ns_ = 0;
  std::vector<int64_t> took_ns_;
};

int Main(bool quick, const char* svg) {
  const std::vector<uint32_t> dcis =
      quick ? std::vector<uint32_t>{1, 4} : std::vector<uint32_t>{1, 2, 4, 8, 16, 32};
  const std::vector<uint32_t> streams =
      quick ? std::vector<uint32_t>{2, 16} : std::vector<uint32_t>{1, 2, 4, 8, 16, 32, 64};
  const std::vector<uint32_t> peers =
      quick ? std::vector<uint32_t>{1, 100} : std::vector<uint32_t>{1, 10, 100, 1'000, 10'000};
  std::vector<ScalingPoint> points;
  std::printf("peers  DCIs  streams  million/s   p50 us    p99 us\n");
  for (const uint32_t peer : peers) {
    for (const uint32_t dci : dcis) {
      for (const uint32_t stream : streams) {
        ScalingPoint point{.dcis = dci, .streams = stream, .peers = peer};
        Scene(point, quick ? 2'000 : 20'000).Go(&point);
        std::printf("%5u  %4u  %7u  %9.2f  %7.1f  %8.1f\n", peer, dci, stream,
                    1e-6 * point.messages_per_second, 1e-3 * static_cast<double>(point.p50_ns),
                    1e-3 * static_cast<double>(point.p99_ns));
        std::fflush(stdout);
        points.push_back(point);
      }
    }
  }
  if (svg == nullptr) return 0;
  std::FILE* file = std::fopen(svg, "w");
  if (file == nullptr) {
    std::perror(svg);
    return 1;
  }
  const std::string text = PlotScaling(points);
  std::fwrite(text.data(), 1, text.size(), file);
  return std::fclose(file) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const int left = argc - 1 - (quick ? 1 : 0);
  if (left > 1 || (left == 1 && argv[argc - 1][0] == '-')) {
    std::fprintf(stderr, "usage: scaling [--quick] [svg file]\n");
    return 2;
  }
  return sluice::benchmarks::Main(quick, left == 1 ? argv[argc - 1] : nullptr);
}

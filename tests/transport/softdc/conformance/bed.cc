// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/bed.h"

#include <arpa/inet.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "transport/softdc/config/config.h"
#include "transport/softdc/device.h"
#include "transport/softdc/fabric_shm/shm_fabric.h"
#include "transport/softdc/model/soft_device.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::conformance {
namespace {

// A device in this process or below it; all hosts are that device.
class LocalBed final : public Bed {
 public:
  LocalBed(const verbs::VerbsApi& api, int device_index)
      : api_(api), list_(api.get_device_list(nullptr)), device_(list_[device_index]) {
    ip_ = IsSoftware() ? "127.0.0.1" : FirstIpv4();
  }
  ~LocalBed() override { api_.free_device_list(list_); }

  const verbs::VerbsApi& api() const override { return api_; }
  ibv_context* Open(int) override { return api_.open_device(device_); }
  bool Progress() override {
    std::this_thread::yield();
    return true;
  }
  bool Concurrent() const override { return true; }
  std::string IpOf(int) const override { return ip_; }
  rdma_event_channel* CreateEventChannel(int) override { return api_.cm_create_event_channel(); }
  bool IsSoftware() const override { return std::string(api_.name) == "softdc"; }
  bool IsMlx5() const override { return api_.dv_is_supported(device_); }

 private:
  // Of the device's GIDs, the first that is an IPv4 address.
  std::string FirstIpv4() const {
    std::string found;
    ibv_context* context = api_.open_device(device_);
    if (context == nullptr) return found;
    for (int i = 0; i < 16; ++i) {
      ibv_gid gid;
      if (api_.query_gid(context, 1, i, &gid) != 0) break;
      if (!IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(gid.raw))) continue;
      char text[INET_ADDRSTRLEN];
      found = inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
      break;
    }
    api_.close_device(context);
    return found;
  }

  const verbs::VerbsApi& api_;
  ibv_device** const list_;
  ibv_device* const device_;
  std::string ip_;
};

// softdc0 with other dials than the environment's. RDMA_CM goes on with those of the environment.
class DialledBed final : public Bed {
 public:
  explicit DialledBed(const std::string& dials)
      : device_(softdc::kDeviceName, softdc::ShmFabric::Get(), softdc::ParseDials(dials).value(),
                softdc::NodeGuid()) {}

  const verbs::VerbsApi& api() const override { return softdc::Verbs(); }
  ibv_context* Open(int) override { return api().open_device(&device_.base); }
  bool Progress() override {
    std::this_thread::yield();
    return true;
  }
  bool Concurrent() const override { return true; }
  std::string IpOf(int) const override { return "127.0.0.1"; }
  rdma_event_channel* CreateEventChannel(int) override { return api().cm_create_event_channel(); }
  bool IsSoftware() const override { return true; }
  bool IsMlx5() const override { return true; }

 private:
  softdc::SoftDevice device_;
};

// A device for each host, on a clock that moves when the test waits.
class SimBed final : public Bed {
 public:
  explicit SimBed(const BedOptions& options) {
    softdc::sim::Options simulated;
    simulated.seed = options.seed;
    simulated.nodes = kHosts;
    if (!options.dials.empty()) simulated.dials = softdc::ParseDials(options.dials).value();
    simulation_ = softdc::sim::Simulation::Create(simulated).value();
  }

  const verbs::VerbsApi& api() const override { return softdc::sim::Simulation::Verbs(); }
  ibv_context* Open(int host) override {
    const As as(*simulation_, static_cast<uint32_t>(host));
    return api().open_device(simulation_->Device(static_cast<uint32_t>(host)));
  }
  bool Progress() override { return simulation_->Step(); }
  bool Concurrent() const override { return false; }
  std::string IpOf(int host) const override {
    const in_addr address = softdc::sim::Simulation::Address(static_cast<uint32_t>(host));
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &address, text, sizeof(text));
    return text;
  }
  rdma_event_channel* CreateEventChannel(int host) override {
    const As as(*simulation_, static_cast<uint32_t>(host));
    return api().cm_create_event_channel();
  }
  bool IsSoftware() const override { return true; }
  bool IsMlx5() const override { return true; }

 private:
  using As = softdc::sim::Simulation::As;
  static constexpr uint32_t kHosts = 3;
  std::unique_ptr<softdc::sim::Simulation> simulation_;
};

// The device that the native bed takes whoever made it; nullptr: the first that mlx5 drives.
const char* NativeName() { return std::getenv("CONFORMANCE_DEVICE"); }

// Index of that device in libibverbs' list, or -1.
int NativeIndex() {
  const verbs::VerbsApi& api = verbs::NativeVerbs();
  int count = 0;
  ibv_device** list = api.get_device_list(&count);
  int found = -1;
  for (int i = 0; i < count && found < 0; ++i) {
    const bool wanted = NativeName() != nullptr
                            ? std::string_view(api.get_device_name(list[i])) == NativeName()
                            : api.dv_is_supported(list[i]);
    if (wanted) found = i;
  }
  if (list != nullptr) api.free_device_list(list);
  return found;
}

std::chrono::milliseconds Patience() {
  const char* text = std::getenv("CONFORMANCE_PATIENCE_MS");
  return std::chrono::milliseconds(text == nullptr ? 20'000 : std::atoi(text));
}

}  // namespace

void Bed::Await(const std::string& what, const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + Patience();
  while (!done()) {
    if (!Progress()) throw std::runtime_error("the world stands still, waiting for " + what);
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("never came: " + what);
  }
}

std::vector<std::string> AllBeds() { return {"shm", "sim", "native"}; }

std::string WhyNoBed(const std::string& kind, const BedOptions& options) {
  if (kind != "native") return "";
  if (!options.dials.empty()) return "a real device has no dials";
  static const bool none = NativeIndex() < 0;
  if (!none) return "";
  if (NativeName() == nullptr) return "libibverbs lists no mlx5 device on this machine";
  return std::string("libibverbs lists no device ") + NativeName();
}

std::unique_ptr<Bed> MakeBed(const std::string& kind, const BedOptions& options) {
  if (kind == "sim") return std::make_unique<SimBed>(options);
  if (kind == "shm" && !options.dials.empty()) return std::make_unique<DialledBed>(options.dials);
  if (kind == "shm") return std::make_unique<LocalBed>(softdc::Verbs(), 0);
  return std::make_unique<LocalBed>(verbs::NativeVerbs(), NativeIndex());
}

}  // namespace sluice::conformance

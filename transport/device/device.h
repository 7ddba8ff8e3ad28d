// SPDX-License-Identifier: Apache-2.0
//
// Device: the RDMA device of this process, opened and probed.
//
// Purpose       A table of verbs functions, an open context, a protection domain, and the capabilities of the device. "auto" selects an
//               active mlx5 device with DC transport if there is one, otherwise the software NIC, and reports the reason. A device
//               without DC is used with RC queue pairs if it is asked for, or if no device has DC (docs/decisions/0068).
// Ownership     The creator. Objects made from it are destroyed first. One endpoint uses it and reads its events.
// Threads       Open(): any (it blocks). Afterwards the object is constant except for events: ReadAsyncEvents() on one thread at a
//               time, RefreshAddress() inside Commands.
#ifndef SLUICE_TRANSPORT_DEVICE_DEVICE_H_
#define SLUICE_TRANSPORT_DEVICE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/device/device_events.h"
#include "transport/device/path_settings.h"
#include "transport/verbs/capabilities.h"
#include "transport/verbs/handles.h"

namespace sluice::device {

struct DeviceSpec;
struct GidEntry;
using Tables = std::vector<const verbs::VerbsApi*>;

struct DeviceEntry {
  std::string name;
  std::string provider;  // the table's name: "native" or "softdc"
  uint64_t guid = 0;     // node GUID, host byte order
  bool active = false;   // one of its ports
  bool usable = false;   // DC on an active port
  bool matches = false;  // one of its ports has the address that was asked for
  std::string note;      // why not, or what it is
};

// All devices of all tables, in order. Opens each for a moment to look at its port.
std::vector<DeviceEntry> ListDevices(const Tables& tables);

struct Limits {
  uint32_t max_cqe = 0;
  uint32_t max_srq_wr = 0;
  uint32_t max_qp_wr = 0;
  uint32_t max_qp = 0;
  uint64_t max_mr_bytes = 0;
  uint32_t port_mtu_bytes = 0;
  uint8_t reads = 1;  // of one DCI that are under way at a time
  // Streams of one DCI as logarithms; both 0 when there are none.
  uint8_t log_streams = 0;
  uint8_t log_errored_streams = 0;
};

class Device {
 public:
  // Path MTU that is used unless UsePathMtu() says otherwise, in bytes: what RoCE has room for in an Ethernet frame of 1500.
  static constexpr uint32_t kDefaultPathMtuBytes = 1024;

  // `spec` is "auto", a device's name ("mlx5_0"), its name and a port ("mlx5_0:2"), or an address of
  // this host ("10.0.0.5"): the device and port that have it. Without a port the first active one. With "/rc" at its end
  // ("mlx5_0/rc") a device with DC is used without.
  // NOT_FOUND lists what there is and why it will not do.
  static absl::StatusOr<std::unique_ptr<Device>> Open(std::string_view spec, const Tables& tables);

  const verbs::VerbsApi& api() const { return *context_.api(); }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const std::string& name() const { return name_; }
  std::string_view provider() const { return api().name; }
  // "softdc0: no active mlx5 device with DC (mlx5_0: port 1 is DOWN)".
  const std::string& choice() const { return choice_; }
  // The mlx5 devices that "auto" could not use before it took a device of a later table, with the reasons:
  // "mlx5_0: can't be opened: …". Empty: there are none, or the device was asked for.
  const std::string& passed_over() const { return passed_over_; }
  uint64_t guid() const { return guid_; }
  const Limits& limits() const { return limits_; }
  // Sets the path MTU of everything that is made from now on: `bytes`, or the active MTU of the port if that is smaller. All sides that
  // talk to each other need the same. Before anything is made. Range: 256 to 4096, a power of two.
  void UsePathMtu(uint32_t bytes);
  // Sets what everything that is made from now on has of `settings`. Before anything is made, and before UsePathMtu(); blocks.
  // INVALID_ARGUMENT: the port can't have such a value. FAILED_PRECONDITION: the entry of the GID table is empty, or the port's
  // table has no such partition key. The message names the option.
  absl::Status UsePath(const PathSettings& settings);
  // The partition key that UsePath() selected; 0: none was asked for, and the entry at index 0 is used.
  uint16_t pkey() const { return pkey_; }
  // The LID of the port when the device was opened; 0 on RoCE.
  uint16_t lid() const { return lid_; }
  // Port, GID index, partition key index, class and MTU; the ack timeout of DCIs is the queue's business.
  const verbs::PathOptions& path() const { return path_; }
  const verbs::CapabilityReport& capabilities() const { return capabilities_; }
  // RC queue pairs are used instead of DC; the capability says why.
  bool rc() const { return !capabilities_.Has(verbs::Feature::kDc); }
  // What the device offers in an ECE exchange; vendor 0: nothing.
  const ibv_ece& ece() const { return ece_; }

  int async_fd() const { return context_->async_fd; }
  // Reads and acknowledges what has happened, and tells of each; never blocks. Events of other ports
  // are counted only. Returns how many events.
  int ReadAsyncEvents(absl::FunctionRef<void(const DeviceEvent&)> tell = [](const DeviceEvent&) {});
  // OK, or UNAVAILABLE: the device is gone or one of its queues overran, so that nothing made from it
  // can be trusted any more; or its port is down, for now.
  absl::Status Usable() const;
  bool broken() const { return broken_by_.load(std::memory_order_relaxed) != nullptr; }
  bool port_up() const { return port_up_.load(std::memory_order_relaxed); }
  uint64_t async_events() const { return async_events_.load(std::memory_order_relaxed); }
  // Of those: events that nothing was done about.
  uint64_t counted_events() const { return counted_events_.load(std::memory_order_relaxed); }

  // After an event about addresses; blocks, so inside Commands. kMoved: path() names another entry of
  // the GID table, or another GID; what was made with the old one has to be made anew. kNone: the
  // table is empty for now, and nothing was changed.
  enum class Address : uint8_t { kSame, kMoved, kNone };
  Address RefreshAddress();

 private:
  Device() = default;
  // What may be used of a device.
  enum class Use : uint8_t { kDc, kAny, kRc };
  static absl::StatusOr<std::unique_ptr<Device>> OpenFor(const DeviceSpec& spec,
                                                         const Tables& tables, Use use);
  absl::Status Init(const verbs::VerbsApi& api, ibv_device* raw, verbs::Context context,
                    uint8_t port_number, const GidEntry& gid, Use use);
  void Probe(Use use);  // probe.cc
  absl::Status ProbeDc();
  absl::Status ProbeRc() const;
  void ProbeStreams(ibv_cq* cq);
  void ProbeOnDci(ibv_qp* dci);
  void ProbeOnDct(ibv_qp* dct);
  void ProbeReservedQpn();

  std::string name_;
  std::string choice_;
  std::string passed_over_;
  uint64_t guid_ = 0;
  Limits limits_;
  verbs::PathOptions path_;
  uint16_t lid_ = 0;
  ibv_ece ece_ = {};
  verbs::CapabilityReport capabilities_;
  ibv_gid gid_ = {};              // at path_.sgid_index
  bool gid_index_fixed_ = false;  // by PathSettings
  uint16_t pkey_ = 0;
  std::atomic<const EventRule*> broken_by_{nullptr};
  std::atomic<bool> port_up_{true};
  std::atomic<uint64_t> async_events_{0};
  std::atomic<uint64_t> counted_events_{0};
  verbs::Context context_;
  verbs::Pd pd_;
};

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_DEVICE_H_

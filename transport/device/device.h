// SPDX-License-Identifier: Apache-2.0
//
// Device: the RDMA device of this process, opened and probed.
//
// Purpose       A table of verbs functions, an open context, a protection domain, and the capabilities of the device. "auto" selects an
//               active mlx5 device with DC transport if there is one, otherwise the software NIC, and reports the reason. A device
//               without DC is used with RC queue pairs if the user names it, or if no device has DC (docs/decisions/0068).
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
  bool active = false;   // one of its ports is active
  bool usable = false;   // DC on an active port
  bool matches = false;  // one of its ports has the requested address
  std::string note;      // active port, or reason why the device is not usable
};

// Returns all devices of all tables, in order. Opens each device that supports DC briefly to query its ports.
std::vector<DeviceEntry> ListDevices(const Tables& tables);

struct Limits {
  uint32_t max_cqe = 0;
  uint32_t max_srq_wr = 0;
  uint32_t max_qp_wr = 0;
  uint32_t max_qp = 0;
  uint64_t max_mr_bytes = 0;
  uint32_t port_mtu_bytes = 0;
  uint8_t reads = 1;  // maximum READs in flight per DCI or RC queue pair
  // Streams of one DCI, and how many of them may be in error, as logarithms; both 0 without streams.
  uint8_t log_streams = 0;
  uint8_t log_errored_streams = 0;
};

class Device {
 public:
  // Default path MTU in bytes: the largest that fits an Ethernet frame of 1500 bytes on RoCE.
  static constexpr uint32_t kDefaultPathMtuBytes = 1024;

  // Opens a device. `spec` is "auto", a device's name ("mlx5_0"), its name and a port ("mlx5_0:2"), or an address of this host
  // ("10.0.0.5"), which selects the device and port that have it. Without a port, the first active port is used. With "/rc" at its end
  // ("mlx5_0/rc"), RC queue pairs are used, even if the device has DC. NOT_FOUND lists the devices and why they are not suitable.
  static absl::StatusOr<std::unique_ptr<Device>> Open(std::string_view spec, const Tables& tables);

  const verbs::VerbsApi& api() const { return *context_.api(); }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const std::string& name() const { return name_; }
  std::string_view provider() const { return api().name; }
  // Returns the device and why it was selected: "softdc0: no better device with DC (mlx5_0: port 1 is not active)".
  const std::string& choice() const { return choice_; }
  // Returns the mlx5 devices that "auto" could not use before it selected a device of a later table, with the reasons:
  // "mlx5_0: can't be opened: …". Returns an empty string if there are none, or if the user selected the device.
  const std::string& passed_over() const { return passed_over_; }
  uint64_t guid() const { return guid_; }
  const Limits& limits() const { return limits_; }
  // Sets the path MTU of all objects that are created later: `bytes`, or the active MTU of the port if that is smaller. All peers need
  // the same value. Call it before any object is created. Range: 256 to 4096, a power of two.
  void UsePathMtu(uint32_t bytes);
  // Applies `settings` to all objects that are created later. Call it before any object is created, and before UsePathMtu(). Blocks.
  // INVALID_ARGUMENT: a value is not possible on the port. FAILED_PRECONDITION: the entry of the GID table is empty, or the port's
  // table has no such partition key. The message names the option.
  absl::Status UsePath(const PathSettings& settings);
  // Returns the partition key that UsePath() selected, or 0 if the settings have none: then the entry at index 0 is used.
  uint16_t pkey() const { return pkey_; }
  // Returns the LID that the port had when the device was opened, or 0 on RoCE.
  uint16_t lid() const { return lid_; }
  // Returns port, GID index, partition key index, class and MTU. The queue computes the ack timeout of DCIs.
  const verbs::PathOptions& path() const { return path_; }
  const verbs::CapabilityReport& capabilities() const { return capabilities_; }
  // Returns whether RC queue pairs are used instead of DC. The capability kDc has the reason.
  bool rc() const { return !capabilities_.Has(verbs::Feature::kDc); }
  // Returns the data order of peers' RDMA WRITEs through an RC queue pair. Only for rc(): a DCT is asked itself.
  verbs::DataOrder rc_write_order() const { return rc_write_order_; }
  // Returns the ECE options that the device offers; vendor_id 0: none.
  const ibv_ece& ece() const { return ece_; }

  int async_fd() const { return context_->async_fd; }
  // Reads and acknowledges the pending events, calls `tell` for each, and returns their number. Does not block. Events of other ports
  // have the reaction kCount.
  int ReadAsyncEvents(absl::FunctionRef<void(const DeviceEvent&)> tell = [](const DeviceEvent&) {});
  // Returns OK or UNAVAILABLE: the device failed or one of its queues overran, so its objects must not be used; or its port is down at
  // present.
  absl::Status Usable() const;
  bool broken() const { return broken_by_.load(std::memory_order_relaxed) != nullptr; }
  bool port_up() const { return port_up_.load(std::memory_order_relaxed); }
  uint64_t async_events() const { return async_events_.load(std::memory_order_relaxed); }
  // Returns how many of these events had the reaction kCount.
  uint64_t counted_events() const { return counted_events_.load(std::memory_order_relaxed); }

  // Reads the GID again after an event about addresses. Blocks, so call it inside Commands. kMoved: path() names another entry of the GID
  // table, or the entry has another GID. Objects that were created with the old GID must be created again. kNone: there is no GID at
  // present, and nothing was changed.
  enum class Address : uint8_t { kSame, kMoved, kNone };
  Address RefreshAddress();

 private:
  Device() = default;
  // Transports that may be used: DC only, DC or RC, RC only.
  enum class Use : uint8_t { kDc, kAny, kRc };
  static absl::StatusOr<std::unique_ptr<Device>> OpenFor(const DeviceSpec& spec,
                                                         const Tables& tables, Use use);
  absl::Status Init(const verbs::VerbsApi& api, ibv_device* raw, verbs::Context context,
                    uint8_t port_number, const GidEntry& gid, Use use);
  void Probe(Use use);  // probe.cc
  absl::Status ProbeDc();
  absl::Status ProbeRc();
  void ProbeOnRc(ibv_qp* qp);
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
  verbs::DataOrder rc_write_order_ = verbs::DataOrder::kNone;
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

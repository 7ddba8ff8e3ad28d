// SPDX-License-Identifier: Apache-2.0
#include "transport/device/device.h"

#include <endian.h>
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/error.h"
#include "transport/device/device_spec.h"
#include "transport/device/gids.h"

namespace sluice::device {
namespace {

// A device list is valid until free_device_list. An open device stays valid longer (man ibv_get_device_list).
class RawList {
 public:
  explicit RawList(const verbs::VerbsApi& api)
      : api_(api), devices_(api.get_device_list(&count_)) {}
  ~RawList() {
    if (devices_ != nullptr) api_.free_device_list(devices_);
  }
  RawList(const RawList&) = delete;
  RawList& operator=(const RawList&) = delete;

  ibv_device** begin() const { return devices_; }
  ibv_device** end() const { return devices_ == nullptr ? nullptr : devices_ + count_; }

 private:
  const verbs::VerbsApi& api_;
  int count_ = 0;
  ibv_device** devices_;
};

// Maximum number of READs in flight per queue: devices of all generations accept this number as targets.
constexpr int kMaxReads = 16;

// Port and GID of a device that can be used.
struct Place {
  uint8_t port = 0;  // 0: nowhere
  GidEntry gid;
  verbs::Context context;  // of the device, which was opened for the queries
};

// Describes a device and sets `*place` to its first active port that `spec` allows. Most multi-port cards show one device per port.
// Without `rc`, the device must support DC.
DeviceEntry Describe(const verbs::VerbsApi& api, ibv_device* raw, const DeviceSpec& spec, bool rc,
                     Place* place) {
  DeviceEntry entry;
  entry.name = api.get_device_name(raw);
  entry.provider = api.name;
  entry.guid = be64toh(api.get_device_guid(raw));
  if (!rc && !api.dv_is_supported(raw)) {
    entry.note = "not an mlx5 device: no DC transport";
    return entry;
  }
  auto context = verbs::OpenContext(api, raw);
  if (!context.ok()) {
    entry.note = "can't be opened: " + std::string(context.status().message());
    return entry;
  }
  ibv_device_attr attr = {};
  if (api.query_device(context->get(), &attr) != 0) {
    entry.note = "can't be queried";
    return entry;
  }
  if (spec.port > attr.phys_port_cnt) {
    entry.note = "it has no port " + std::to_string(spec.port);
    return entry;
  }
  for (int number = 1; number <= attr.phys_port_cnt && !entry.usable; ++number) {
    if (spec.port != 0 && number != spec.port) continue;
    const auto port_number = static_cast<uint8_t>(number);
    const std::string name = (entry.note.empty() ? "port " : ", port ") + std::to_string(number);
    ibv_port_attr port = {};
    if (api.query_port(context->get(), port_number, &port) != 0) {
      entry.note += name + " can't be queried";
      continue;
    }
    GidEntry gid;
    if (spec.gid.has_value()) {
      gid = FindGid(api, context->get(), port_number, port.gid_tbl_len, *spec.gid);
      if (gid.index < 0) {
        entry.note += name + " does not have that address";
        continue;
      }
      entry.matches = true;
    } else {
      gid = PickGid(api, context->get(), port_number, port.gid_tbl_len);
    }
    entry.usable = entry.active = port.state == IBV_PORT_ACTIVE;
    if (!entry.active) {
      entry.note += name + " is not active";
      continue;
    }
    entry.note = "port " + std::to_string(number) + " is active";
    *place = {.port = port_number, .gid = gid, .context = std::move(*context)};
  }
  return entry;
}

}  // namespace

std::vector<DeviceEntry> ListDevices(const Tables& tables) {
  std::vector<DeviceEntry> entries;
  for (const verbs::VerbsApi* api : tables) {
    for (ibv_device* raw : RawList(*api)) {
      Place place;
      entries.push_back(Describe(*api, raw, ParseSpec("auto"), /*rc=*/false, &place));
    }
  }
  return entries;
}

absl::StatusOr<std::unique_ptr<Device>> Device::Open(std::string_view text, const Tables& tables) {
  const DeviceSpec spec = ParseSpec(text);
  if (spec.rc) return OpenFor(spec, tables, Use::kRc);
  if (!spec.automatic) return OpenFor(spec, tables, Use::kAny);
  auto with_dc = OpenFor(spec, tables, Use::kDc);
  if (with_dc.ok()) return with_dc;
  auto with_rc = OpenFor(spec, tables, Use::kAny);
  return with_rc.ok() ? std::move(with_rc) : std::move(with_dc);
}

absl::StatusOr<std::unique_ptr<Device>> Device::OpenFor(const DeviceSpec& spec,
                                                        const Tables& tables, Use use) {
  const bool automatic = spec.automatic;
  std::string seen;      // devices that were not suitable
  std::string none;      // tables without a device
  std::string unusable;  // mlx5 devices that could not be used
  for (const verbs::VerbsApi* api : tables) {
    const RawList devices(*api);
    const std::string unusable_before = unusable;
    if (devices.begin() == devices.end())
      none += (none.empty() ? "" : ", ") + std::string(api->name);
    for (ibv_device* raw : devices) {
      Place place;
      const DeviceEntry entry = Describe(*api, raw, spec, use != Use::kDc, &place);
      if (!spec.Names(entry.name) || (spec.gid.has_value() && !entry.matches)) {
        seen += (seen.empty() ? "" : ", ") + entry.name;
        continue;
      }
      std::string problem = entry.note;
      if (entry.usable) {
        std::unique_ptr<Device> device(new Device());
        absl::Status status =
            device->Init(*api, raw, std::move(place.context), place.port, place.gid, use);
        if (status.ok()) {
          device->passed_over_ = unusable_before;
          if (spec.gid.has_value()) {
            device->choice_ = entry.name + ": its port " + std::to_string(place.port) +
                              " has the address " + spec.text;
          } else if (!automatic) {
            device->choice_ = entry.name + ": asked for by name";
          } else if (use != Use::kDc) {
            device->choice_ = entry.name + ": the first active device";
          } else if (seen.empty()) {
            device->choice_ = entry.name + ": the first active device with DC";
            if (!none.empty()) device->choice_ += "; no RDMA device from " + none;
          } else {
            device->choice_ = entry.name + ": no better device with DC (" + seen + ")";
          }
          if (device->rc()) {
            device->choice_ += "; RC queue pairs instead of DC: " +
                               device->capabilities_.Get(verbs::Feature::kDc).why;
          }
          return device;
        }
        problem = std::string(status.message());
      }
      if (!automatic) {
        return base::Error(absl::StatusCode::kFailedPrecondition,
                           "device " + entry.name + " can't be used",
                           {.layer = "device",
                            .operation = "open",
                            .cause = problem,
                            .remedy = "bring its port up, or use --device=auto"});
      }
      seen += (seen.empty() ? "" : ", ") + entry.name + ": " + problem;
      if (api->dv_is_supported(raw)) {
        unusable += (unusable.empty() ? "" : ", ") + entry.name + ": " + problem;
      }
    }
  }
  const char* what = spec.gid.has_value() ? "no device has the address " : "no device named ";
  return base::Error(
      absl::StatusCode::kNotFound, automatic ? "no device with DC transport" : what + spec.text,
      {.layer = "device",
       .operation = "open",
       .cause = seen.empty() ? "this program sees no RDMA device at all" : "there are: " + seen,
       .remedy = automatic ? "link the software NIC, or install an mlx5 card and its driver"
                           : "run sluice_info for the names, or use --device=auto"});
}

void Device::UsePathMtu(uint32_t bytes) {
  const uint32_t used = std::min(bytes, limits_.port_mtu_bytes);
  path_.mtu = static_cast<ibv_mtu>(std::bit_width(used) - 8);  // IBV_MTU_256 is 1
}

absl::Status Device::Init(const verbs::VerbsApi& api, ibv_device* raw, verbs::Context context,
                          uint8_t port_number, const GidEntry& gid, Use use) {
  name_ = api.get_device_name(raw);
  guid_ = be64toh(api.get_device_guid(raw));
  context_ = std::move(context);
  auto pd = verbs::AllocPd(api, context_.get());
  if (!pd.ok()) return pd.status();
  pd_ = std::move(*pd);

  ibv_device_attr attr = {};
  int error_number = api.query_device(context_.get(), &attr);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_query_device", {.layer = "device"});
  }
  limits_.max_cqe = static_cast<uint32_t>(attr.max_cqe);
  limits_.max_srq_wr = static_cast<uint32_t>(attr.max_srq_wr);
  limits_.max_qp_wr = static_cast<uint32_t>(attr.max_qp_wr);
  limits_.max_qp = static_cast<uint32_t>(attr.max_qp);
  limits_.max_mr_bytes = attr.max_mr_size;
  path_.max_rd_atomic = static_cast<uint8_t>(
      std::clamp(std::min(attr.max_qp_init_rd_atom, attr.max_qp_rd_atom), 1, kMaxReads));

  ibv_port_attr port = {};
  error_number = api.query_port(context_.get(), port_number, &port);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_query_port", {.layer = "device"});
  }
  lid_ = port.link_layer == IBV_LINK_LAYER_INFINIBAND ? port.lid : 0;
  limits_.port_mtu_bytes = 128u << port.active_mtu;  // IBV_MTU_256 is 1
  path_.port = port_number;
  UsePathMtu(kDefaultPathMtuBytes);
  path_.sgid_index = static_cast<uint8_t>(std::max(gid.index, 0));
  gid_ = gid.gid;

  const int flags = fcntl(async_fd(), F_GETFL);
  if (flags < 0 || fcntl(async_fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::ErrnoError(errno, "fcntl(async_fd)", {.layer = "device"});
  }
  Probe(use);
  const verbs::Capability& dc = capabilities_.Get(verbs::Feature::kDc);
  if (dc.on) return absl::OkStatus();
  if (use == Use::kDc) {
    return base::Error(absl::StatusCode::kUnimplemented, name_ + " has no DC transport",
                       {.layer = "device", .operation = "probe", .cause = dc.why});
  }
  limits_.reads = path_.max_rd_atomic;
  const absl::Status status = ProbeRc();
  if (status.ok()) return status;
  return base::Error(absl::StatusCode::kUnimplemented,
                     name_ + " has neither DC transport nor RC queue pairs with an SRQ",
                     {.layer = "device",
                      .operation = "probe",
                      .cause = dc.why + "; " + std::string(status.message())});
}

}  // namespace sluice::device

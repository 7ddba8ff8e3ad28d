// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/soft_device.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace sluice::softdc {
namespace {

std::mutex& RegistryMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// Guarded by RegistryMutex().
std::set<SoftDevice*>& Registry() {
  static auto* const registry = new std::set<SoftDevice*>;
  return *registry;
}

}  // namespace

SoftDevice::SoftDevice(const std::string& name, Fabric& fabric, const Dials& dials,
                       __be64 node_guid)
    : fabric_(fabric), dials_(dials), node_guid_(node_guid) {
  base.node_type = IBV_NODE_CA;
  base.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(base.name, sizeof(base.name), "%s", name.c_str());
  std::snprintf(base.dev_name, sizeof(base.dev_name), "u%.*s",
                static_cast<int>(sizeof(base.dev_name)) - 2, name.c_str());
  // The paths that a kernel would use. Reads below these paths are answered without files (preload/lookups.h).
  std::snprintf(base.dev_path, sizeof(base.dev_path), "/sys/class/infiniband_verbs/%s",
                base.dev_name);
  std::snprintf(base.ibdev_path, sizeof(base.ibdev_path), "/sys/class/infiniband/%s", base.name);
  std::lock_guard lock(RegistryMutex());
  Registry().insert(this);
}

SoftDevice::~SoftDevice() {
  std::lock_guard lock(RegistryMutex());
  Registry().erase(this);
}

SoftDevice* SoftDevice::Find(const ibv_device* device) {
  std::lock_guard lock(RegistryMutex());
  for (SoftDevice* known : Registry()) {
    if (&known->base == device) return known;
  }
  return nullptr;
}

}  // namespace sluice::softdc

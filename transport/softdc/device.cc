// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/device.h"

#include <endian.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "transport/softdc/config/config.h"
#include "transport/softdc/fabric_shm/shm_fabric.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/model/soft_device.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

// FNV-1a: the same in every process; not a secret.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

ibv_device* Device() {
  static SoftDevice* const device =
      new SoftDevice(kDeviceName, ShmFabric::Get(), DialsOfThisProcess(), NodeGuid());
  return &device->base;
}

ibv_device* SecondDevice() {
  static SoftDevice* const device =
      DialsOfThisProcess().port.second_device
          ? new SoftDevice(kSecondDeviceName, ShmFabric::Get(), DialsOfThisProcess(),
                           htobe64(be64toh(NodeGuid()) + 1))
          : nullptr;
  return device == nullptr ? nullptr : &device->base;
}

uint64_t NodeGuid() {
  const uint64_t hash = Hash(absl::StrCat("softdc/", geteuid(), "/", FabricDomain()));
  // Locally administered: no real adapter has this GUID.
  return htobe64((hash & ~(uint64_t{3} << 56)) | uint64_t{2} << 56);
}

ibv_context* CmContext() {
  static ibv_context* const context = OpenDevice(Device());
  return context;
}

ibv_pd* CmPd() {
  static ibv_pd* const pd = CmContext() == nullptr ? nullptr : AllocPd(CmContext());
  return pd;
}

ibv_context* SecondCmContext() {
  static ibv_context* const context = OpenDevice(SecondDevice());
  return context;
}

ibv_pd* SecondCmPd() {
  static ibv_pd* const pd = SecondCmContext() == nullptr ? nullptr : AllocPd(SecondCmContext());
  return pd;
}

}  // namespace sluice::softdc

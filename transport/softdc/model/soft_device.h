// SPDX-License-Identifier: Apache-2.0
//
// SoftDevice: a device before it is opened: name, fabric, dials, GUID. A process may have many: softdc0 on the shared-memory fabric
// (device.cc), and any number of simulated devices.
//
// Ownership     A device outlives its contexts.
// Threads       Any: constant after creation.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_SOFT_DEVICE_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_SOFT_DEVICE_H_

#include <infiniband/verbs.h>

#include <string>

#include "transport/softdc/config/dials.h"
#include "transport/softdc/model/fabric.h"

namespace sluice::softdc {

class SoftDevice {
 public:
  // `base` is the user's handle; it must stay first.
  ibv_device base{};

  // `fabric` outlives the device. `node_guid` is in network byte order. Names that are too long for libibverbs are truncated.
  SoftDevice(const std::string& name, Fabric& fabric, const Dials& dials, __be64 node_guid);
  ~SoftDevice();
  SoftDevice(const SoftDevice&) = delete;
  SoftDevice& operator=(const SoftDevice&) = delete;

  // Returns the device of a handle, or null if it is no softdc device. Any pointer may be passed.
  static SoftDevice* Find(const ibv_device* device);

  Fabric& fabric() const { return fabric_; }
  const Dials& dials() const { return dials_; }
  __be64 node_guid() const { return node_guid_; }

 private:
  Fabric& fabric_;
  const Dials dials_;
  const __be64 node_guid_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_SOFT_DEVICE_H_

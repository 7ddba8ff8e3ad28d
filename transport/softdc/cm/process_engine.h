// SPDX-License-Identifier: Apache-2.0
//
// The connection manager of this process, on the shm fabric, with timers of the firmware thread.
// Both faces use it.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::cm {

// Where ids get their device from, and the dials; to be set before the first channel is opened,
// else ids have no device. After fork() the child needs no new call.
void SetDeviceHooks(DeviceHooks hooks, const Dials::Cm& dials = {});

// Made at the first call, never destroyed. The child of a fork has neither the loop's thread nor
// the wires: it starts with an engine of its own, and the parent's ids are of no use to it, as with
// librdmacm.
Engine* ProcessEngine();

// Whoever opens a channel from now on does so on `engine` (nullptr: the process's own again). For
// simulated devices and for tests.
void UseEngine(Engine* engine);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_

// SPDX-License-Identifier: Apache-2.0
//
// The connection manager of this process, on the shm fabric, with timers of the firmware thread. Both
// interfaces (cm.h and ucma/) use it.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::cm {

// Sets the device of the ids, and the dials. Call it before the first channel is opened, else ids have no
// device. A child after fork() needs no new call.
void SetDeviceHooks(DeviceHooks hooks, const Dials::Cm& dials = {});

// Returns the engine of this process. Creates it at the first call and never destroys it. The child of a fork
// has neither the loop's thread nor the wires, so it starts with a new engine. It cannot use the ids of the
// parent, as with librdmacm.
Engine* ProcessEngine();

// Makes all channels opened from now on use `engine`. nullptr: the engine of the process again. For simulated
// devices and for tests.
void UseEngine(Engine* engine);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_PROCESS_ENGINE_H_

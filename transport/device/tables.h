// SPDX-License-Identifier: Apache-2.0
//
// The tables of this program: the system's libraries first, then the software NIC.
#ifndef SLUICE_TRANSPORT_DEVICE_TABLES_H_
#define SLUICE_TRANSPORT_DEVICE_TABLES_H_

#include "transport/device/device.h"

namespace sluice::device {

// Returns both tables. No other function of the product links both providers.
Tables AllTables();

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_TABLES_H_

// SPDX-License-Identifier: Apache-2.0
//
// FakeNetwork, FakeEndpoint: the names by which tests know middleware/local, for its faults.
#ifndef SLUICE_TESTS_SUPPORT_FAKE_ENDPOINT_H_
#define SLUICE_TESTS_SUPPORT_FAKE_ENDPOINT_H_

#include "middleware/local/local_endpoint.h"

namespace sluice::testing_support {

using FakeEndpoint = local::LocalEndpoint;
using FakeNetwork = local::LocalNetwork;

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FAKE_ENDPOINT_H_

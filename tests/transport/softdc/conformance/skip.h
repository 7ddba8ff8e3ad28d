// SPDX-License-Identifier: Apache-2.0
//
// SkipTest: ends the running test as skipped, from however deep inside of it.
//
// Threads       The test's own thread.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SKIP_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SKIP_H_

#include <string>

namespace sluice::conformance {

// `why` names what the device has not. What the test has found wrong before still counts.
[[noreturn]] void SkipTest(const std::string& why);

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SKIP_H_

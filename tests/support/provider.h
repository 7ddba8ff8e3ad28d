// SPDX-License-Identifier: Apache-2.0
//
// Provider(): the verbs that tests of one host use: softdc's, or with SLUICE_TEST_PROVIDER=native the system's. The lab runs tests so, on a
// soft RoCE device with the name softdc0 (tests/lab). Tests that replace functions of softdc or set its dials do not use it.
#ifndef SLUICE_TESTS_SUPPORT_PROVIDER_H_
#define SLUICE_TESTS_SUPPORT_PROVIDER_H_

#include <cstdlib>
#include <string_view>

#include "transport/softdc/verbs.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::testing_support {

inline const verbs::VerbsApi& Provider() {
  const char* const name = std::getenv("SLUICE_TEST_PROVIDER");
  return name != nullptr && std::string_view(name) == "native" ? verbs::NativeVerbs()
                                                               : softdc::Verbs();
}

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_PROVIDER_H_

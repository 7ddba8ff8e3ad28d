// SPDX-License-Identifier: Apache-2.0
//
// The frame of all conformance tests: once per usable bed, and the facts of docs/facts.md that a
// test proves, said in its first line.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CONFORMANCE_TEST_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CONFORMANCE_TEST_H_

#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/conformance/bed.h"
#include "tests/transport/softdc/conformance/node.h"

namespace sluice::conformance {

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The bed is made when it is first asked for, so that a test may turn dials before.
  Bed& bed() {
    if (bed_ == nullptr) bed_ = MakeBed(GetParam(), bed_options);
    return *bed_;
  }
  const verbs::VerbsApi& api() { return bed().api(); }
  // The usual target lives on another host than the usual sender.
  static NodeOptions OnHost(int host, NodeOptions options = {}) {
    options.host = host;
    return options;
  }

  BedOptions bed_options;

 private:
  std::unique_ptr<Bed> bed_;
};

// Numbers of docs/facts.md, as literals: tools/dev/check_facts reads them from the source, the test's
// XML has them as a property, and its log has them for who reads that.
#define PROVES(...)                                                     \
  do {                                                                  \
    ::testing::Test::RecordProperty("facts", #__VA_ARGS__);             \
    std::printf("[  FACTS   ] %s\n", #__VA_ARGS__); /* mutation_test */ \
    std::fflush(stdout);                                                \
  } while (false)

#define CONFORMANCE_SUITE(suite)                        \
  class suite : public ConformanceTest {};              \
  INSTANTIATE_TEST_SUITE_P(                             \
      Device, suite, ::testing::ValuesIn(UsableBeds()), \
      [](const ::testing::TestParamInfo<std::string>& info) { return info.param; })

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CONFORMANCE_TEST_H_

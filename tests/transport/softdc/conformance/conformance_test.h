// SPDX-License-Identifier: Apache-2.0
//
// The frame of all conformance tests: once per bed, skipped with the reason where there is no such
// device, and the facts of docs/facts.md that a test proves, said in its first line.
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
#include "tests/transport/softdc/conformance/skip.h"

namespace sluice::conformance {

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string why = WhyNoBed(GetParam());
    if (!why.empty()) GTEST_SKIP() << GetParam() << ": " << why;
  }
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

// Of suites about what only mlx5 devices have. A test that names neither is run on every device, its
// nodes' queue pairs being RC where there is no DC (node.h).
class Mlx5Test : public ConformanceTest {
 protected:
  void SetUp() override {
    ConformanceTest::SetUp();
    if (!IsSkipped() && !bed().IsMlx5()) GTEST_SKIP() << "the suite is about what is mlx5's own";
  }
};

// Numbers of docs/facts.md, as literals: tools/dev/check_facts reads them from the source, the test's
// XML has them as a property, and its log has them for who reads that.
#define PROVES(...)                                                     \
  do {                                                                  \
    ::testing::Test::RecordProperty("facts", #__VA_ARGS__);             \
    std::printf("[  FACTS   ] %s\n", #__VA_ARGS__); /* mutation_test */ \
    std::fflush(stdout);                                                \
  } while (false)

// For the first lines of a test of a dial, before anything asks for the bed.
#define TURN_DIALS(text)                                           \
  do {                                                             \
    bed_options.dials = (text);                                    \
    const std::string why_not = WhyNoBed(GetParam(), bed_options); \
    if (!why_not.empty()) GTEST_SKIP() << why_not;                 \
  } while (false)

#define ON_EVERY_DEVICE(suite)                                            \
  INSTANTIATE_TEST_SUITE_P(Device, suite, ::testing::ValuesIn(AllBeds()), \
                           [](const auto& info) { return info.param; })

#define CONFORMANCE_SUITE(suite)           \
  class suite : public ConformanceTest {}; \
  ON_EVERY_DEVICE(suite)
#define MLX5_SUITE(suite)           \
  class suite : public Mlx5Test {}; \
  ON_EVERY_DEVICE(suite)

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CONFORMANCE_TEST_H_

// SPDX-License-Identifier: Apache-2.0
//
// Runs a GoogleTest program in a process of its own, as it is or with a mutation (transport/softdc/model/mutation.h), and judges
// whether its tests notice the mutation.
//
// Only a test that fails notices anything. A program that does not start, dies, ends with another status than GoogleTest's, does
// not end in time or leaves tests out shows nothing, and is an error.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SUITE_RUN_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SUITE_RUN_H_

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sluice::conformance {

struct SuiteOptions {
  std::string program;
  std::string mutation;  // of softdc; empty: none
  std::string without;   // tests that do not run, as GoogleTest's filter has them
  unsigned limit_s = 300;
};

struct SuiteRun {
  std::map<std::string, std::vector<int>> facts;  // of each test that began
  std::set<std::string> failed;
  std::vector<std::string> errors;
};

SuiteRun RunSuite(const SuiteOptions& options);

// Numbers in a text like "3,35,86".
std::vector<int> Numbers(const std::string& text);

// Why a run with a mutation does not show that a test of each of these facts notices it; empty if it does. The baseline is a run
// of the same program and tests without a mutation.
std::vector<std::string> Judge(const SuiteRun& baseline, const SuiteRun& mutated,
                               const std::vector<int>& facts);

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SUITE_RUN_H_

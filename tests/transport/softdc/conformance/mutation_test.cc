// SPDX-License-Identifier: Apache-2.0
//
// The test of the tests: the suite on a softdc that is right passes; on one with a mistake, for each
// mistake of mutation.inc, at least one test of every fact that it breaks fails. Prints who noticed.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/conformance/suite_run.h"

namespace sluice::conformance {
namespace {

constexpr char kSuite[] = "tests/transport/softdc/conformance/conformance_instrumented";
constexpr char kOtherDevices[] = "*/native";  // they have no mutations
// Thousands of messages each: they run when it is order that is broken.
constexpr char kSlowTests[] = "*PayloadOrder*";
constexpr int kFactOfSlowTests = 80;

struct Mutant {
  const char* name;
  const char* facts;
  const char* what;
};
void PrintTo(const Mutant& mutant, std::ostream* out) { *out << mutant.name; }
constexpr Mutant kMutants[] = {
#define SOFTDC_MUTATION(name, facts, what) {#name, facts, what},
#include "transport/softdc/model/mutation.inc"
#undef SOFTDC_MUTATION
};

SuiteOptions Options(bool slow) {
  std::string without = kOtherDevices;
  if (!slow) without = without + ":" + kSlowTests;
  return {.program = kSuite, .mutation = "", .without = without};
}

// The same tests without a mutation, whichever mutants a filter or shard chose.
const SuiteRun& Baseline(bool slow) {
  static std::map<bool, SuiteRun> runs;
  const auto [at, is_new] = runs.try_emplace(slow);
  if (is_new) at->second = RunSuite(Options(slow));
  return at->second;
}

TEST(Mutations, WithoutOneTheSuitePasses) {
  const SuiteRun& run = Baseline(/*slow=*/true);
  EXPECT_GT(run.facts.size(), 90u);
  for (const std::string& error : run.errors) ADD_FAILURE() << error;
  for (const std::string& name : run.failed) ADD_FAILURE() << name << " fails";
}

class MutationTest : public ::testing::TestWithParam<Mutant> {};
INSTANTIATE_TEST_SUITE_P(Softdc, MutationTest, ::testing::ValuesIn(kMutants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(MutationTest, IsNoticedByATestOfEachFactThatItBreaks) {
  const Mutant& mutant = GetParam();
  const std::vector<int> broken = Numbers(mutant.facts);
  const bool slow = std::find(broken.begin(), broken.end(), kFactOfSlowTests) != broken.end();
  SuiteOptions options = Options(slow);
  options.mutation = mutant.name;
  const SuiteRun run = RunSuite(options);
  std::printf("%s (%s; facts %s) was noticed by %zu of %zu:\n", mutant.name, mutant.what,
              mutant.facts, run.failed.size(), run.facts.size());
  for (const std::string& name : run.failed) std::printf("  %s\n", name.c_str());
  std::fflush(stdout);
  for (const std::string& wrong : Judge(Baseline(slow), run, broken)) {
    ADD_FAILURE() << mutant.name << ": " << wrong;
  }
}

}  // namespace
}  // namespace sluice::conformance

// SPDX-License-Identifier: Apache-2.0
//
// The test of the tests: the suite on a softdc that is right passes; on one with a mistake, for each
// mistake of mutation.inc, at least one test of every fact that it breaks fails. Prints who noticed.
//
// The suite runs in a child process, built with the mutations. A child that dies or hangs is run
// again without the tests that it has behind it; the test it died in has noticed.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::conformance {
namespace {

constexpr char kSuite[] = "tests/transport/softdc/conformance/conformance_instrumented";
// Thousands of messages each: they run when it is order that is broken.
constexpr char kOtherDevices[] = "*/native";  // they have no mutations
constexpr char kSlowTests[] = "*PayloadOrder*";
constexpr int kFactOfSlowTests = 80;
constexpr char kPatienceMs[] = "1500";  // for what never comes
constexpr unsigned kChildSeconds = 120;
constexpr int kMaxRuns = 25;

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

struct Outcome {
  std::map<std::string, std::vector<int>> facts;  // of each test that began
  std::set<std::string> failed;
  std::string unfinished;  // the test in which the child died
};

std::vector<int> Numbers(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::stoi(one));
  return numbers;
}

void Read(FILE* output, Outcome* outcome) {
  char buffer[4096];
  std::string current;
  while (std::fgets(buffer, sizeof(buffer), output) != nullptr) {
    std::string line(buffer);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    const auto rest = [&](const char* head) { return line.substr(std::strlen(head)); };
    if (line.starts_with("[ RUN      ] ")) {
      current = rest("[ RUN      ] ");
      outcome->facts[current];
    } else if (line.starts_with("[  FACTS   ] ")) {
      outcome->facts[current] = Numbers(rest("[  FACTS   ] "));
    } else if (line.starts_with("[       OK ] ") || line.starts_with("[  SKIPPED ] ")) {
      current.clear();
    } else if (line.starts_with("[  FAILED  ] ") && !current.empty()) {
      outcome->failed.insert(current);
      current.clear();
    }
  }
  outcome->unfinished = current;
}

// The child's environment is ours without what the test runner put there.
void BecomeSuite(const char* mutation, const std::string& filter) {
  for (const char* name :
       {"XML_OUTPUT_FILE", "GTEST_OUTPUT", "TEST_TOTAL_SHARDS", "TEST_SHARD_INDEX",
        "TEST_SHARD_STATUS_FILE", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX",
        "GTEST_SHARD_STATUS_FILE", "TESTBRIDGE_TEST_ONLY", "TEST_PREMATURE_EXIT_FILE"}) {
    unsetenv(name);
  }
  if (*mutation != '\0') {
    setenv("SOFTDC_MUTATION", mutation, 1);
    setenv("CONFORMANCE_PATIENCE_MS", kPatienceMs, 1);
  }
  alarm(kChildSeconds);  // stays across exec: a child that hangs is ended
  execl(kSuite, kSuite, filter.c_str(), "--gtest_color=no", nullptr);
  _exit(127);
}

// Exit code of the child; -1 when it was ended by a signal.
int RunOnce(const char* mutation, const std::string& filter, Outcome* outcome) {
  int out[2];
  EXPECT_EQ(pipe(out), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    BecomeSuite(mutation, filter);
  }
  close(out[1]);
  FILE* output = fdopen(out[0], "r");
  Read(output, outcome);
  std::fclose(output);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Outcome RunSuite(const char* mutation, const std::string& without, int* exit_code) {
  Outcome outcome;
  const std::string never = kOtherDevices + (without.empty() ? "" : ":" + without);
  std::string done = never;
  for (int run = 0; run < kMaxRuns; ++run) {
    *exit_code = RunOnce(mutation, "--gtest_filter=-" + done, &outcome);
    if (*exit_code >= 0 && outcome.unfinished.empty()) break;
    if (!outcome.unfinished.empty()) outcome.failed.insert(outcome.unfinished);
    done = never;
    for (const auto& [name, facts] : outcome.facts) done += ":" + name;
  }
  return outcome;
}

TEST(Mutations, WithoutOneTheSuitePasses) {
  int exit_code = 0;
  const Outcome outcome = RunSuite("", "", &exit_code);
  EXPECT_EQ(exit_code, 0);
  EXPECT_GT(outcome.facts.size(), 90u);
  for (const std::string& name : outcome.failed) ADD_FAILURE() << name;
}

class MutationTest : public ::testing::TestWithParam<Mutant> {};
INSTANTIATE_TEST_SUITE_P(Softdc, MutationTest, ::testing::ValuesIn(kMutants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(MutationTest, IsNoticedByATestOfEachFactThatItBreaks) {
  const Mutant& mutant = GetParam();
  int exit_code = 0;
  const std::vector<int> broken = Numbers(mutant.facts);
  const bool slow = std::find(broken.begin(), broken.end(), kFactOfSlowTests) != broken.end();
  const Outcome outcome = RunSuite(mutant.name, slow ? "" : kSlowTests, &exit_code);
  std::printf("%s (%s; facts %s) was noticed by %zu of %zu:\n", mutant.name, mutant.what,
              mutant.facts, outcome.failed.size(), outcome.facts.size());
  std::set<int> noticed;
  for (const std::string& name : outcome.failed) {
    std::printf("  %s\n", name.c_str());
    const auto& facts = outcome.facts.at(name);
    noticed.insert(facts.begin(), facts.end());
  }
  std::fflush(stdout);
  for (const int fact : broken) {
    EXPECT_TRUE(noticed.contains(fact))
        << "no test of fact " << fact << " fails with " << mutant.name;
  }
}

}  // namespace
}  // namespace sluice::conformance

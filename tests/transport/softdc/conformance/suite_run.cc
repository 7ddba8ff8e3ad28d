// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/suite_run.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

namespace sluice::conformance {
namespace {

constexpr char kPatienceMs[] = "1500";  // for what never comes
constexpr int kTestsFailed = 1;         // GoogleTest's exit status

// Returns the test that had not ended when the output did; empty if there is none.
std::string Read(FILE* output, SuiteRun* run) {
  char buffer[4096];
  std::string current;
  while (std::fgets(buffer, sizeof(buffer), output) != nullptr) {
    std::string line(buffer);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    const auto rest = [&](const char* head) { return line.substr(std::strlen(head)); };
    if (line.starts_with("[ RUN      ] ")) {
      current = rest("[ RUN      ] ");
      run->facts[current];
    } else if (line.starts_with("[  FACTS   ] ")) {
      run->facts[current] = Numbers(rest("[  FACTS   ] "));
    } else if (line.starts_with("[       OK ] ") || line.starts_with("[  SKIPPED ] ")) {
      current.clear();
    } else if (line.starts_with("[  FAILED  ] ") && !current.empty()) {
      run->failed.insert(current);
      current.clear();
    }
  }
  return current;
}

// The child's environment is ours without what the test runner put there. It has the same patience with and without a mutation.
[[noreturn]] void BecomeSuite(const SuiteOptions& options) {
  for (const char* name : {"XML_OUTPUT_FILE", "GTEST_OUTPUT", "TEST_TOTAL_SHARDS",
                           "TEST_SHARD_INDEX", "TEST_SHARD_STATUS_FILE", "GTEST_TOTAL_SHARDS",
                           "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE", "TESTBRIDGE_TEST_ONLY",
                           "TEST_PREMATURE_EXIT_FILE", "SOFTDC_MUTATION"}) {
    unsetenv(name);
  }
  if (!options.mutation.empty()) setenv("SOFTDC_MUTATION", options.mutation.c_str(), 1);
  setenv("CONFORMANCE_PATIENCE_MS", kPatienceMs, 1);
  const std::string filter = "--gtest_filter=-" + options.without;
  alarm(options.limit_s);  // stays across exec
  execl(options.program.c_str(), options.program.c_str(), filter.c_str(), "--gtest_color=no",
        nullptr);
  std::fprintf(stderr, "%s: %s\n", options.program.c_str(), std::strerror(errno));
  _exit(127);
}

}  // namespace

std::vector<int> Numbers(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::stoi(one));
  return numbers;
}

SuiteRun RunSuite(const SuiteOptions& options) {
  SuiteRun run;
  int out[2];
  if (pipe(out) != 0) {
    run.errors.push_back(std::string("pipe: ") + std::strerror(errno));
    return run;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    close(out[0]);
    close(out[1]);
    BecomeSuite(options);
  }
  close(out[1]);
  FILE* output = fdopen(out[0], "r");
  const std::string unfinished = Read(output, &run);
  std::fclose(output);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    run.errors.push_back(std::string("fork: ") + std::strerror(errno));
    return run;
  }
  const std::string where = unfinished.empty() ? " between two tests" : " in " + unfinished;
  if (WIFSIGNALED(status)) {
    const bool late = WTERMSIG(status) == SIGALRM;
    const std::string why = late ? "did not end within " + std::to_string(options.limit_s) + " s,"
                                 : strsignal(WTERMSIG(status));
    run.errors.push_back(why + where);
    return run;
  }
  const int code = WEXITSTATUS(status);
  if (!unfinished.empty() || (code != 0 && code != kTestsFailed)) {
    run.errors.push_back("ended with status " + std::to_string(code) + where);
  } else if (run.failed.empty() != (code == 0)) {
    run.errors.push_back(
        "ended with status " + std::to_string(code) +
        (run.failed.empty() ? " although no test failed" : " although a test failed"));
  }
  return run;
}

std::vector<std::string> Judge(const SuiteRun& baseline, const SuiteRun& mutated,
                               const std::vector<int>& facts) {
  std::vector<std::string> wrong;
  if (baseline.facts.empty()) wrong.push_back("no test ran without the mutation");
  for (const std::string& error : baseline.errors)
    wrong.push_back("without the mutation: " + error);
  for (const std::string& name : baseline.failed) {
    wrong.push_back(name + " fails without the mutation too");
  }
  for (const std::string& error : mutated.errors) wrong.push_back(error);
  if (mutated.errors.empty()) {
    for (const auto& [name, unused] : baseline.facts) {
      if (!mutated.facts.contains(name)) wrong.push_back(name + " did not run");
    }
  }
  if (facts.empty()) wrong.push_back("the mutation breaks no fact");
  for (const int fact : facts) {
    bool found = false;
    for (const std::string& name : mutated.failed) {
      const auto proves = baseline.facts.find(name);
      if (proves == baseline.facts.end()) continue;
      for (const int one : proves->second) found = found || one == fact;
    }
    if (!found) wrong.push_back("no test of fact " + std::to_string(fact) + " fails");
  }
  return wrong;
}

}  // namespace sluice::conformance

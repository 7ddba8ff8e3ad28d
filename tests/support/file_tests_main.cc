// SPDX-License-Identifier: Apache-2.0
//
// The main function of a program that holds the tests of many files (tests/support/cc_tests.bzl). Started under the name x_test it
// runs the tests of x_test.cc; under any other name it runs all tests. A filter of the user applies as well.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <string_view>

namespace {

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Lets only the tests of `file` run, within the filter of the user. Returns false, and says why, if that can't be done.
bool KeepOnly(std::string_view file) {
  std::set<std::string> kept;
  std::set<std::string> others;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      const std::string name = std::string(suite.name()) + "." + test.name();
      (BaseName(test.file()) == file ? kept : others).insert(name);
    }
  }
  if (kept.empty()) {
    std::fprintf(stderr, "this program has no test of %s: is the file in the list of cc_tests()?\n",
                 std::string(file).c_str());
    return false;
  }
  for (const std::string& name : kept) {
    if (!others.contains(name)) continue;
    std::fprintf(stderr,
                 "%s has a test %s, and another file of this program too: rename one of them\n",
                 std::string(file).c_str(), name.c_str());
    return false;
  }
  std::string& filter = testing::GTEST_FLAG(filter);
  const bool unfiltered = filter == "*";
  std::string joined;
  for (const std::string& name : unfiltered ? kept : others)
    joined.append(joined.empty() ? "" : ":").append(name);
  if (unfiltered) {
    filter = joined;
  } else if (!joined.empty()) {
    filter.append(filter.find('-') == std::string::npos ? "-" : ":").append(joined);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name(BaseName(argv[0]));
  testing::InitGoogleMock(&argc, argv);
  if (name.ends_with("_test") && !KeepOnly(name + ".cc")) return 1;
  return RUN_ALL_TESTS();
}

// SPDX-License-Identifier: Apache-2.0
#include "tests/errors/catalogue.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "transport/base/error.h"

namespace sluice::testing_support {
namespace {

struct Entry {
  std::string code;
  std::string says;
};

// Rows of five columns: entry, code, text, cause, remedy. "\|" is a bar within a column.
std::map<std::string, Entry> ReadPage() {
  std::map<std::string, Entry> entries;
  std::ifstream page("docs/errors.md");
  for (std::string line; std::getline(page, line);) {
    for (size_t bar = 0; (bar = line.find("\\|")) != std::string::npos;) line.replace(bar, 2, "/");
    const std::vector<std::string> columns = absl::StrSplit(line, " | ");
    if (columns.size() != 5 || columns[1] == "code") continue;
    const std::string entry(absl::StripPrefix(columns[0], "| "));
    EXPECT_TRUE(
        entries.emplace(entry, Entry{columns[1], columns[2].substr(1, columns[2].size() - 2)})
            .second)
        << entry << " is there twice";
  }
  return entries;
}

class Catalogue final : public testing::Environment {
 public:
  const std::map<std::string, Entry>& entries() const { return entries_; }
  void Seen(const std::string& entry) { seen_.insert(entry); }

  void TearDown() override {
    if (testing::GTEST_FLAG(filter) != "*") return;
    for (const auto& [entry, unused] : entries_) {
      EXPECT_TRUE(seen_.contains(entry)) << "docs/errors.md: no test provokes " << entry;
    }
  }

 private:
  const std::map<std::string, Entry> entries_ = ReadPage();
  std::set<std::string> seen_;
};

Catalogue* const the_catalogue = [] {
  auto* catalogue = new Catalogue;
  testing::AddGlobalTestEnvironment(catalogue);  // owns it
  return catalogue;
}();

}  // namespace

void ExpectCatalogued(const std::string& entry, const absl::Status& status) {
  const auto at = the_catalogue->entries().find(entry);
  ASSERT_TRUE(at != the_catalogue->entries().end()) << "docs/errors.md has no entry " << entry;
  the_catalogue->Seen(entry);
  EXPECT_EQ(absl::StatusCodeToString(status.code()), at->second.code) << status;
  EXPECT_NE(std::string(status.message()).find(at->second.says), std::string::npos)
      << entry << " says: " << status;
  // What was ended on purpose needs no remedy.
  if (absl::IsCancelled(status)) return;
  const auto detail = base::DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_FALSE(detail->layer().empty()) << status;
  EXPECT_FALSE(detail->cause().empty()) << status;
  EXPECT_FALSE(detail->remedy().empty()) << status;
}

}  // namespace sluice::testing_support

// SPDX-License-Identifier: Apache-2.0
#include "tools/peers_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/markup.h"

namespace sluice::tools {
namespace peers_page_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFigures[] =
    "note\ttwo CPUs & a cache\n"
    "figure\traw\tcache line\t64\t500\t490\t520\n"
    "figure\tcall\tSluice: call\t64\t1250\t1200\t1300\n"
    "figure\tcall\tSluice: call\t16384\t10900\t10000\t12000\n"
    "figure\tcall\tSluice: call\trate\t3100000\t3000000\t3200000\n"
    "figure\tother\tOther <b>\t64\t100000\t90000\t110000\n"
    "figure\tother\tOther <b>\trate\t31000\t30000\t32000\n";

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PeersPageTest, TableHasEachFigureAndTheMultipleOfTheMachinesLimit) {
  const auto figures = ParsePeersFigures(kFigures);
  ASSERT_TRUE(figures.ok()) << figures.status();
  const std::string page = PeersPage(*figures);
  EXPECT_THAT(page, HasSubstr("<th>64 B</th><th>16 KiB</th>"));
  EXPECT_THAT(page, HasSubstr("<td title=\"1.20 us to 1.30 us\">1.25 us</td>"));
  EXPECT_THAT(page, HasSubstr("<td>2.5 x</td><td title=\"3.00 M to 3.20 M\">3.10 M</td>"));
  EXPECT_THAT(page, HasSubstr("<td>200.0 x</td><td title=\"30.0 k to 32.0 k\">31.0 k</td>"));
  EXPECT_THAT(page, HasSubstr("<p>two CPUs &amp; a cache</p>"));
}

TEST(PeersPageTest, EachLibraryButTheLimitHasALineAndABar) {
  const std::string page = PeersPage(*ParsePeersFigures(kFigures));
  EXPECT_EQ(Count(page, "<polyline"), 2u);
  EXPECT_EQ(Count(page, "class=\"bar "), 2u);
  EXPECT_THAT(page, HasSubstr("bar b0\" style=\"width: 100.0%\""));
  EXPECT_THAT(page, HasSubstr("bar b1\" style=\"width: 1.0%\""));
}

TEST(PeersPageTest, IsOneFileWhoseElementsAreClosed) {
  const std::string page = PeersPage(*ParsePeersFigures(kFigures));
  EXPECT_EQ(support::UnclosedElements(page), "");
  EXPECT_THAT(page, Not(HasSubstr("Other <b>")));
  EXPECT_THAT(page, Not(HasSubstr("http")));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
}

TEST(PeersPageTest, WrongLinesAreNamed) {
  for (const std::string line :
       {"figure\tcall\tSluice\t64\t1\t1", "figure\tcall\tSluice\t64\t1\t1\t0",
        "figure\tcall\tSluice\t64\tnan\t1\t1", "figure\tcall\tSluice\t0\t1\t1\t1",
        "figure\tcall\tSluice\tx\t1\t1\t1", "figure\tcall\tSluice: call\t64\t1\t1\t1", "nothing",
        "figure\t\t\t64\t1\t1\t1"}) {
    const auto figures = ParsePeersFigures(absl::StrCat(kFigures, line, "\n"));
    EXPECT_EQ(figures.status().code(), absl::StatusCode::kInvalidArgument) << line;
    EXPECT_THAT(figures.status().message(), HasSubstr("line 8 ")) << line;
  }
  EXPECT_FALSE(ParsePeersFigures("").ok());
  EXPECT_FALSE(ParsePeersFigures("note\tonly\n").ok());
}

TEST(PeersPageTest, MoreLibrariesThanColoursAreRefused) {
  std::string text;
  for (int i = 0; i < 8; ++i) absl::StrAppend(&text, "figure\tl", i, "\tL\t64\t1\t1\t1\n");
  EXPECT_TRUE(ParsePeersFigures(text).ok());
  EXPECT_FALSE(ParsePeersFigures(text + "figure\tl8\tL\t64\t1\t1\t1\n").ok());
}

}  // namespace peers_page_test
}  // namespace sluice::tools

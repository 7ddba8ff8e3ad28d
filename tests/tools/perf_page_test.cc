// SPDX-License-Identifier: Apache-2.0
#include "tools/perf_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/markup.h"
#include "tools/latency_report.h"
#include "transport/base/histogram.h"

namespace sluice::tools {
namespace perf_page_test {

using ::testing::HasSubstr;
using ::testing::Not;

BenchResult Example(uint32_t payload_bytes, int64_t scale_ns) {
  BenchResult result;
  result.set_test("rpc");
  result.mutable_config()->set_payload_bytes(payload_bytes);
  result.mutable_config()->set_window(8);
  result.mutable_host()->set_device("softdc0");
  base::Histogram latencies_ns;
  for (int64_t i = 1; i <= 1000; ++i) latencies_ns.Record(scale_ns + i);
  *result.mutable_latency() = Summarise(latencies_ns);
  result.mutable_counts()->set_started(1000);
  result.set_calls_per_second(123'456);
  for (int i = 1; i <= 4; ++i) {
    RateSample* sample = result.add_rates();
    sample->set_end_seconds(0.01 * i);
    sample->set_calls(100 * i);
  }
  return result;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PerfPageTest, EachResultHasALineInEachPlotAndAColumn) {
  const std::vector<BenchResult> results = {Example(64, 1000), Example(1024, 5000)};
  const std::string page = PerfPage(results);
  EXPECT_EQ(Count(page, "class=\"line s0\""), 3u);
  EXPECT_EQ(Count(page, "class=\"line s1\""), 3u);
  EXPECT_EQ(Count(page, "<td>123456</td>"), 2u);
  EXPECT_THAT(page, HasSubstr("A: rpc, 64 B, 8 in flight"));
  EXPECT_THAT(page, HasSubstr("B: rpc, 1024 B, 8 in flight"));
}

TEST(PerfPageTest, ElementsAreClosed) {
  const std::vector<BenchResult> results = {Example(64, 1000)};
  EXPECT_EQ(support::UnclosedElements(PerfPage(results)), "");
}

TEST(PerfPageTest, TextsFromFilesAreNoMarkup) {
  BenchResult result = Example(64, 1000);
  result.mutable_config()->add_arguments("<script>alert(1)</script>");
  result.mutable_host()->set_hostname("a&b\"c");
  result.set_test("<b>");
  const std::vector<BenchResult> results = {result};
  const std::string page = PerfPage(results);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(page, HasSubstr("a&amp;b&quot;c"));
}

TEST(PerfPageTest, ResultWithoutCallsIsAPageWithoutLines) {
  const std::vector<BenchResult> results = {BenchResult()};
  const std::string page = PerfPage(results);
  EXPECT_EQ(support::UnclosedElements(page), "");
  EXPECT_THAT(page, Not(HasSubstr("<polyline")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(PerfPageTest, BucketsThatExceedTheCountDoNoHarm) {  // a file that somebody edited
  BenchResult result = Example(64, 1000);
  result.mutable_latency()->set_count(1);
  const std::vector<BenchResult> results = {result};
  EXPECT_THAT(PerfPage(results), Not(HasSubstr("nan")));
}

TEST(PerfPageTest, RatioToTheMachinesLimitIsShownIfMeasured) {
  BenchResult result = Example(64, 1000);
  EXPECT_THAT(PerfTable({&result, 1}), HasSubstr("not measured"));
  result.set_raw_round_trip_ns(result.latency().p50_ns() / 4);
  EXPECT_THAT(PerfTable({&result, 1}), HasSubstr("4.0 x"));
}

TEST(PerfPageTest, FileThatCannotBeWrittenIsNamed) {
  const BenchResult result = Example(64, 1000);
  const absl::Status status = WritePerfPage({&result, 1}, "/no/such/folder/page.html");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/folder/page.html"));
}

}  // namespace perf_page_test
}  // namespace sluice::tools

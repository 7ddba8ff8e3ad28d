// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "google/protobuf/util/json_util.h"
#include "proto/bench_result.pb.h"
#include "tests/tools/program_run.h"

namespace sluice::tools {
namespace sluice_perf_test {

using ::testing::HasSubstr;

constexpr char kPerf[] = "tools/sluice_perf";

BenchResult Measure(std::vector<std::string> options) {
  options.insert(options.begin(), {kPerf, "rpc", "--duration=200ms", "--warmup=20ms",
                                   "--device=softdc0", "--json", "-"});
  const ProgramRun run = RunProgram(options);
  EXPECT_EQ(run.exit_code, 0);
  BenchResult result;
  const auto parsed = google::protobuf::util::JsonStringToMessage(run.output, &result);
  EXPECT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << run.output;
  return result;
}

void ExpectConsistent(const BenchResult& result) {
  EXPECT_EQ(result.schema_version(), 1u);
  EXPECT_EQ(result.tool(), "sluice_perf");
  EXPECT_EQ(result.test(), "rpc");
  EXPECT_EQ(result.host().device(), "softdc0");
  EXPECT_GT(result.counts().ok(), 0u);
  EXPECT_EQ(result.counts().failed(), 0u) << result.counts().first_failure();
  EXPECT_EQ(result.counts().ok(), result.counts().started());
  EXPECT_EQ(result.latency().count(), result.counts().ok());
  uint64_t in_buckets = 0;
  for (const LatencyBucket& bucket : result.latency().buckets()) in_buckets += bucket.count();
  EXPECT_EQ(in_buckets, result.counts().ok());
  EXPECT_GT(result.latency().min_ns(), 0);
  EXPECT_LE(result.latency().min_ns(), result.latency().p50_ns());
  EXPECT_LE(result.latency().p50_ns(), result.latency().p99_ns());
  EXPECT_LE(result.latency().p99_ns(), result.latency().p999_ns());
  EXPECT_GE(result.duration_seconds(), 0.2);
  EXPECT_NEAR(result.calls_per_second() * result.duration_seconds(),
              static_cast<double>(result.counts().ok()), 1);
  EXPECT_GE(result.rates_size(), 99);  // of 100 intervals, the last of which may not have ended
  uint64_t in_intervals = 0;
  for (const RateSample& sample : result.rates()) in_intervals += sample.calls();
  EXPECT_GT(in_intervals, 0u);
  EXPECT_LE(in_intervals, result.counts().ok());
}

TEST(SluicePerfTest, OneCallAtATimeAsJson) {
  const BenchResult result = Measure({});
  ExpectConsistent(result);
  EXPECT_EQ(result.config().window(), 1u);
  EXPECT_EQ(result.config().payload_bytes(), 64u);
  EXPECT_EQ(result.config().loop(), "closed");
  EXPECT_EQ(result.config().duration_seconds(), 0.2);
}

TEST(SluicePerfTest, NothingComesThroughLanesThatAreOff) {
  const BenchResult result = Measure({"--lanes=off"});
  ExpectConsistent(result);
  EXPECT_EQ(result.config().lanes(), "off");
  EXPECT_EQ(result.counts().through_lanes(), 0u);
}

TEST(SluicePerfTest, LanesAreAutoOffOrOn) {
  for (const char* word : {"rpc", "flow", "serve", "sink"}) {
    const ProgramRun run = RunProgram({kPerf, word, "--lanes=sometimes"});
    EXPECT_EQ(run.exit_code, 2) << word;
  }
}

TEST(SluicePerfTest, OpenLoopStartsAsManyAsTheScheduleHas) {
  const BenchResult result = Measure({"--rate=1000", "--deadline=30s"});
  EXPECT_EQ(result.config().loop(), "open");
  EXPECT_EQ(result.config().rate_per_second(), 1000);
  EXPECT_EQ(result.config().window(), 1024u);
  EXPECT_EQ(result.counts().started(), 200u);
  EXPECT_EQ(result.counts().failed(), 0u) << result.counts().first_failure();
  EXPECT_EQ(result.latency().count(), 200u);
  const ProgramRun people = RunProgram({kPerf, "rpc", "--rate=1000", "--duration=20ms",
                                        "--deadline=30s", "--warmup=0", "--device=softdc0"});
  EXPECT_THAT(people.output, HasSubstr("1000 calls a second by a schedule"));
  EXPECT_THAT(people.output, HasSubstr("(open loop)"));
}

TEST(SluicePerfTest, WindowOfLargeCallsAsJson) {
  const BenchResult result = Measure({"--window=16", "--size=100000"});
  ExpectConsistent(result);
  EXPECT_EQ(result.config().window(), 16u);
  EXPECT_EQ(result.config().payload_bytes(), 100'000u);
  EXPECT_NEAR(result.payload_bytes_per_second(), result.calls_per_second() * 100'000, 1);
}

TEST(SluicePerfTest, CallsAboveTheEagerLimitAreLargeMessages) {
  const BenchResult result = Measure({"--window=2", "--size=3000000"});
  ExpectConsistent(result);
  EXPECT_EQ(result.config().payload_bytes(), 3'000'000u);
}

TEST(SluicePerfTest, ServerOfItsOwnProcess) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1);
  auto server = ChildProcess::Start({kPerf, "serve", "--listen=127.0.0.1:0", "--device=softdc0"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = ListeningAddress(**server, absl::Seconds(30));
  ASSERT_TRUE(address.ok()) << address.status();
  const BenchResult result = Measure({"--server=" + *address});
  ExpectConsistent(result);
  EXPECT_EQ(result.config().server(), *address);
}

TEST(SluicePerfTest, ServerThatDemandsASecret) {
  const std::string file = absl::StrCat(testing::TempDir(), "/perf_secret.", getpid());
  std::ofstream(file) << "K9pQ1h0wZ4s7cVfT2mBx8r5u\n";
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  ExpectConsistent(Measure({"--secret_file=" + file}));  // both know it

  setenv("SOFTDC_DOMAIN", absl::StrCat("test-secret-", getpid()).c_str(), 1);
  auto server = ChildProcess::Start(
      {kPerf, "serve", "--listen=127.0.0.1:0", "--device=softdc0", "--secret_file=" + file});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = ListeningAddress(**server, absl::Seconds(30));
  ASSERT_TRUE(address.ok()) << address.status();
  const ProgramRun run = RunProgram({kPerf, "rpc", "--server=" + *address, "--device=softdc0"});
  EXPECT_EQ(run.exit_code, 1);
  unlink(file.c_str());
}

TEST(SluicePerfTest, TableForPeople) {
  const ProgramRun run =
      RunProgram({kPerf, "rpc", "--duration=100ms", "--warmup=0", "--device=softdc0"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* part :
       {"1 outstanding (closed loop)", "64-byte", "p50", "p99.9", "calls a second"}) {
    EXPECT_THAT(run.output, HasSubstr(part));
  }
}

BenchResult MeasureFlow(std::vector<std::string> options) {
  options.insert(options.begin(), {kPerf, "flow", "--duration=200ms", "--warmup=20ms",
                                   "--device=softdc0", "--json", "-"});
  const ProgramRun run = RunProgram(options);
  EXPECT_EQ(run.exit_code, 0);
  BenchResult result;
  const auto parsed = google::protobuf::util::JsonStringToMessage(run.output, &result);
  EXPECT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << run.output;
  EXPECT_EQ(result.test(), "flow");
  EXPECT_GT(result.counts().ok(), 0u);
  EXPECT_EQ(result.counts().failed(), 0u) << result.counts().first_failure();
  EXPECT_EQ(result.latency().count(), result.counts().ok());
  EXPECT_GT(result.latency().min_ns(), 0);
  EXPECT_NEAR(result.calls_per_second() * result.duration_seconds(),
              static_cast<double>(result.counts().ok()), 1);
  return result;
}

TEST(SluicePerfTest, FlowsThereAndBackAsJson) {
  const BenchResult result = MeasureFlow({"--flows=10", "--window=4", "--size=1000"});
  EXPECT_EQ(result.config().flows(), 10u);
  EXPECT_EQ(result.config().window(), 4u);
  EXPECT_EQ(result.config().payload_bytes(), 1'000u);
  EXPECT_FALSE(result.config().one_way());
}

TEST(SluicePerfTest, EmptyMessagesOneWay) {
  const BenchResult result = MeasureFlow({"--replies=0", "--size=0"});
  EXPECT_EQ(result.config().flows(), 1u);
  EXPECT_TRUE(result.config().one_way());
}

TEST(SluicePerfTest, OneMessageAtATimeForPeople) {
  const ProgramRun run = RunProgram(
      {kPerf, "flow", "--window=1", "--duration=100ms", "--warmup=0", "--device=softdc0"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* part :
       {"1 flows, 1 outstanding", "there and back", "messages a second", "p99"}) {
    EXPECT_THAT(run.output, HasSubstr(part));
  }
}

TEST(SluicePerfTest, FlowsToWhoTakesNone) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-none-", getpid()).c_str(), 1);
  auto server = ChildProcess::Start({kPerf, "serve", "--listen=127.0.0.1:0", "--device=softdc0"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = ListeningAddress(**server, absl::Seconds(30));
  ASSERT_TRUE(address.ok()) << address.status();
  const ProgramRun run =
      RunProgram({kPerf, "flow", "--server=" + *address, "--device=softdc0", "--json", "-"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.output, "");
}

TEST(SluicePerfTest, NoServerIsAFailureWithNothingOnStandardOutput) {
  const ProgramRun run =
      RunProgram({kPerf, "rpc", "--server=127.0.0.1:1", "--device=softdc0", "--json", "-"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.output, "");
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SluicePerfTest, ResultsAsPagesAndBesideEachOther) {
  const std::string base = absl::StrCat(testing::TempDir(), "/perf.", getpid());
  const std::string page = base + ".html", calls = base + ".a.json", flows = base + ".b.json";
  const std::vector<std::string> common = {"--duration=100ms", "--warmup=0", "--device=softdc0"};
  std::vector<std::string> rpc = {kPerf, "rpc", "--html=" + page, "--json=" + calls};
  rpc.insert(rpc.end(), common.begin(), common.end());
  ASSERT_EQ(RunProgram(rpc).exit_code, 0);
  EXPECT_THAT(TextOf(page), HasSubstr("class=\"line s0\""));
  std::vector<std::string> flow = {kPerf, "flow", "--size=1000", "--json=" + flows};
  flow.insert(flow.end(), common.begin(), common.end());
  ASSERT_EQ(RunProgram(flow).exit_code, 0);

  const ProgramRun both = RunProgram({kPerf, "compare", calls, flows, "--html=" + page});
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_THAT(both.output, HasSubstr("A: rpc, 64 B, 1 in flight"));
  EXPECT_THAT(both.output, HasSubstr("B: flow, 1000 B, 32 in flight"));
  EXPECT_THAT(TextOf(page), HasSubstr("class=\"line s1\""));

  EXPECT_EQ(RunProgram({kPerf, "compare", page}).exit_code, 1);  // no JSON
  EXPECT_EQ(RunProgram({kPerf, "compare", base + ".none"}).exit_code, 1);
  EXPECT_EQ(RunProgram({kPerf, "compare", calls, "--html=/no/such/folder/x"}).exit_code, 1);
  for (const std::string& file : {page, calls, flows}) unlink(file.c_str());
}

TEST(SluicePerfTest, LimitOfTheMachineStandsBesideTheResult) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two CPUs";
  const BenchResult result = Measure({"--raw"});
  EXPECT_GT(result.raw_round_trip_ns(), 0);
  const ProgramRun run =
      RunProgram({kPerf, "rpc", "--raw", "--duration=100ms", "--warmup=0", "--device=softdc0"});
  EXPECT_THAT(run.output, HasSubstr("a cache line there and back"));
  EXPECT_EQ(RunProgram({kPerf, "rpc", "--raw", "--cpus=0,0", "--device=softdc0"}).exit_code, 1);
}

TEST(SluicePerfTest, WrongUsageIsExitCode2) {
  const std::vector<std::vector<std::string>> wrong = {
      {kPerf},
      {kPerf, "rcp"},
      {kPerf, "rpc", "--windw=3"},
      {kPerf, "rpc", "--window=0"},
      {kPerf, "rpc", "--duration=-1s"},
      {kPerf, "rpc", "--size=200000000"},
      {kPerf, "rpc", "--cpus=0,1,2"},
      {kPerf, "rpc", "--server=127.0.0.1:1", "--cpus=0,1"},
      {kPerf, "serve", "--window=3"},
      {kPerf, "flow", "--replies=2"},
      {kPerf, "flow", "--flows=1000000", "--window=100"},
      {kPerf, "flow", "--deadline=1s"},
      {kPerf, "sink", "--window=0"},
      {kPerf, "compare"},
      {kPerf, "compare", "a", "b", "c", "d", "e", "f", "g"},
      {kPerf, "compare", "a", "--json=b"},
  };
  for (const auto& arguments : wrong) {
    const ProgramRun run = RunProgram(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments.back();
    EXPECT_EQ(run.output, "") << arguments.back();
  }
}

TEST(SluicePerfTest, HelpIsExitCode0) {
  EXPECT_EQ(RunProgram({kPerf, "--help"}).exit_code, 0);
  const ProgramRun run = RunProgram({kPerf, "rpc", "--help"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, HasSubstr("--window"));
}

}  // namespace sluice_perf_test
}  // namespace sluice::tools

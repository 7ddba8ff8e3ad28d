// SPDX-License-Identifier: Apache-2.0
//
// bulk_rates: how fast ports (middleware/bulk) move data between two pinned processes on softdc, each polled by its one
// thread, in one run:
//
//   memcpy      the same bytes within one process: the floor of this machine
//   check       signatures of the same bytes looked at within one process, and nothing moved
//   plain       without protection
//   pipelined   T10-DIF in memory and on the wire; data and OK posted together
//   serial      likewise, the OK posted once the data have moved
//   software    likewise, the CPU checks
//
// Usage      bulk_rates [--cpus=0,1] [--repetitions=9] [--size=1048576] [--open=4] [--seconds=0.3]
// Method     Repetitions of all alternate, each with two fresh processes; a repetition is the data that have moved in its time,
//            after a tenth of it. The line printed is the median of the repetitions, with the lowest and the highest, and
//            the median of the ratios to the memcpy of the same repetition. Of what is written the lender checks the signatures
//            once more, in its process; of what is read it sees nothing.
//
// A process of its own is this program with a role: "move WAY KIND" prints MB/s; "lend WAY TICKET" prints "lent ANSWER
// CAPABILITY", all three in hex.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "benchmarks/dc_side.h"
#include "middleware/bulk/port.h"
#include "tools/child_process.h"
#include "tools/command_line.h"
#include "tools/sluice_perf_options.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/integrity/convert.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice::benchmarks {
namespace {

using integrity::Guard;

constexpr absl::Duration kHang = absl::Seconds(60);
constexpr integrity::Protection kDif{.memory = Guard::kT10DifCrc, .wire = Guard::kT10DifCrc};

struct Options {
  std::string cpus = "0,1";
  uint32_t repetitions = 9;
  uint32_t size_bytes = 1 << 20;
  uint32_t open = 4;
  absl::Duration time = absl::Milliseconds(300);
};

struct Row {
  const char* way;
  const char* kind;
};
constexpr Row kRows[] = {{"memcpy", "-"},        {"check", "-"},        {"plain", "write"},
                         {"pipelined", "write"}, {"serial", "write"},   {"software", "write"},
                         {"plain", "read"},      {"pipelined", "read"}, {"serial", "read"},
                         {"software", "read"}};

integrity::Protection ProtectionOf(const std::string& way) {
  return way == "plain" || way == "memcpy" ? integrity::Protection() : kDif;
}

bulk::PortOptions PortOptionsOf(const std::string& way) {
  bulk::PortOptions options;
  options.offload = way != "software";
  options.pipelining = way != "serial";
  return options;
}

// One piece of memory for each open transfer, one behind the other.
uint64_t StrideBytes(const Options& options) {
  return integrity::MemoryBytes(kDif, options.size_bytes);
}
std::span<std::byte> Memory(const Options& options) {
  const size_t bytes = StrideBytes(options) * options.open;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  Check(memory != MAP_FAILED, "mmap");
  return {static_cast<std::byte*>(memory), bytes};
}

void Protect(const integrity::Protection& protection, const Options& options,
             std::span<std::byte> memory) {
  std::vector<std::byte> data(options.size_bytes);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 300);
  for (uint32_t i = 0; i < options.open; ++i) {
    integrity::Protect(protection, data,
                       memory.subspan(i * StrideBytes(options),
                                      integrity::MemoryBytes(protection, options.size_bytes)));
  }
}

// MB/s. `move` moves one transfer's data, or waits until one has moved.
double Rate(const Options& options, const std::function<void()>& move) {
  base::RealClock clock;
  const int64_t all_ns = absl::ToInt64Nanoseconds(options.time);
  const int64_t begin_ns = clock.NowNs();
  while (clock.NowNs() < begin_ns + all_ns / 10) move();
  const int64_t from_ns = clock.NowNs();
  uint64_t moved_bytes = 0;
  int64_t now_ns = from_ns;
  for (; now_ns < begin_ns + all_ns || moved_bytes == 0; now_ns = clock.NowNs()) {
    move();
    moved_bytes += options.size_bytes;
  }
  return 1e3 * static_cast<double>(moved_bytes) / static_cast<double>(now_ns - from_ns);
}

// ---- within one process

double RateOfMemcpy(const Options& options) {
  const auto from = Memory(options);
  const auto to = Memory(options);
  Protect({}, options, from);
  size_t at = 0;
  return Rate(options, [&] {
    std::memcpy(to.data() + at, from.data() + at, options.size_bytes);
    at = (at + StrideBytes(options)) % from.size();
  });
}

double RateOfCheck(const Options& options) {
  const auto memory = Memory(options);
  Protect(kDif, options, memory);
  size_t at = 0;
  return Rate(options, [&] {
    const auto wrong = integrity::Check(kDif, integrity::Direction::kToWire,
                                        memory.subspan(at, StrideBytes(options)));
    benchmarks::Check(!wrong, "checking");
    at = (at + StrideBytes(options)) % memory.size();
  });
}

// ---- between two

// A port, and its user: transfers that are always open, each begins again when it has ended.
class Mover final : public bulk::PortUser {
 public:
  explicit Mover(const std::string& way) {
    auto device = device::Device::Open("softdc0", {&softdc::Verbs()});
    CheckOk(device.status());
    device_ = *std::move(device);
    auto port = bulk::Port::Create(*device_, clock_, random_, commands_, *this, PortOptionsOf(way));
    CheckOk(port.status());
    port_ = *std::move(port);
  }
  ~Mover() override {
    commands_.Finish();
    port_.reset();
  }

  bulk::Capability Lend(std::span<std::byte> memory, uint8_t rights) {
    auto lease = port_->leases().Lend(memory, rights, 0);
    CheckOk(lease.status());
    while (!lent_) port_->Poll();
    lease_ = *lease;
    return *lent_;
  }
  void Begin(bulk::PeerId peer, const bulk::TransferRequest& request, const Options& options) {
    peer_ = peer;
    request_ = request;
    request_.local = lease_;
    for (uint32_t i = 0; i < options.open; ++i) Start(i * StrideBytes(options));
  }
  // Until one has ended.
  void Next() {
    for (const uint64_t before = ended_; ended_ == before;) port_->Poll();
  }
  bulk::Port& port() { return *port_; }

  void OnLent(bulk::LeaseId, const absl::StatusOr<bulk::Capability>& capability) override {
    CheckOk(capability.status());
    lent_ = *capability;
  }
  void OnReturned(bulk::LeaseId) override {}
  void OnTransferred(bulk::TransferId transfer, const absl::Status& status) override {
    CheckOk(status);
    ++ended_;
    const auto node = offsets_.extract(transfer);
    Start(node.mapped());
  }
  void OnArrival(bulk::PeerId, const bulk::Arrival& arrival) override { CheckOk(arrival.status); }
  void OnPeerDown(bulk::PeerId, const absl::Status&) override {}

 private:
  void Start(uint64_t offset) {
    request_.local_offset = request_.remote_offset = offset;
    auto transfer = port_->Start(peer_, request_);
    CheckOk(transfer.status());
    offsets_[*transfer] = offset;
  }

  std::unique_ptr<device::Device> device_;
  base::RealClock clock_;
  base::SystemRandom random_;
  poller::InlineCommands commands_;
  std::unique_ptr<bulk::Port> port_;
  bulk::LeaseId lease_;
  std::optional<bulk::Capability> lent_;
  bulk::PeerId peer_;
  bulk::TransferRequest request_;
  std::map<bulk::TransferId, uint64_t> offsets_;
  uint64_t ended_ = 0;
};

[[noreturn]] void Lend(const std::string& way, const std::string& ticket, const Options& options) {
  const auto memory = Memory(options);
  Protect(ProtectionOf(way), options, memory);
  Mover lender(way);
  std::string answer;
  CheckOk(lender.port().Accept(absl::HexStringToBytes(ticket), &answer).status());
  const bulk::Capability lent = lender.Lend(memory, bulk::kMayRead | bulk::kMayWrite);
  std::printf("lent %s %s\n", absl::BytesToHexString(answer).c_str(),
              absl::BytesToHexString(ToBytes(lent)).c_str());
  std::fflush(stdout);
  for (;;) lender.port().Poll();
}

std::vector<std::string> Role(const std::vector<std::string>& words, const Options& options) {
  std::vector<std::string> arguments = {tools::PathBesideThisProgram("bulk_rates")};
  arguments.insert(arguments.end(), words.begin(), words.end());
  for (const std::string& option :
       {"--cpus=" + options.cpus, absl::StrCat("--size=", options.size_bytes),
        absl::StrCat("--open=", options.open), "--seconds=" + absl::FormatDuration(options.time)}) {
    arguments.push_back(option);
  }
  return arguments;
}

double RateOfBulk(const std::string& way, const std::string& kind, const Options& options) {
  const auto memory = Memory(options);
  Protect(ProtectionOf(way), options, memory);
  Mover mover(way);
  std::string ticket;
  auto peer = mover.port().Offer(&ticket);
  CheckOk(peer.status());
  auto lender =
      tools::ChildProcess::Start(Role({"lend", way, absl::BytesToHexString(ticket)}, options));
  CheckOk(lender.status());
  auto line = (*lender)->ReadLine(kHang);
  CheckOk(line.status());
  const std::vector<std::string> words = absl::StrSplit(*line, ' ');
  benchmarks::Check(words.size() == 3 && words[0] == "lent", "lending");
  CheckOk(mover.port().Complete(*peer, absl::HexStringToBytes(words[1])));
  mover.Lend(memory, 0);
  bulk::TransferRequest request;
  request.kind = kind == "read" ? integrity::TransferKind::kRead : integrity::TransferKind::kWrite;
  request.remote = *bulk::LoadCapability(absl::HexStringToBytes(words[2]));
  request.data_bytes = options.size_bytes;
  request.protection = ProtectionOf(way);
  mover.Begin(*peer, request, options);
  return Rate(options, [&] { mover.Next(); });
}

double RateOf(const std::string& way, const std::string& kind, const Options& options) {
  if (way == "memcpy") return RateOfMemcpy(options);
  if (way == "check") return RateOfCheck(options);
  return RateOfBulk(way, kind, options);
}

// ---- the run

double RepeatOnce(const Row& row, const Options& options) {
  auto mover = tools::ChildProcess::Start(Role({"move", row.way, row.kind}, options));
  CheckOk(mover.status());
  auto line = (*mover)->ReadLine(kHang);
  CheckOk(line.status());
  double rate = 0;
  benchmarks::Check(absl::SimpleAtod(*line, &rate), "measuring");
  return rate;
}

double Median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void Run(const Options& options) {
  std::vector<std::vector<double>> rates(std::size(kRows));
  std::vector<std::vector<double>> ratios(std::size(kRows));
  for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t row = 0; row < std::size(kRows); ++row) {
      rates[row].push_back(RepeatOnce(kRows[row], options));
      ratios[row].push_back(rates[row].back() / rates[0].back());
    }
    std::fprintf(stderr, "\r%u of %u", repetition + 1, options.repetitions);
  }
  std::fprintf(stderr, "\n");
  const BenchHost host = tools::ThisHost();
  std::printf("%s, %u CPUs, %s, build %s; CPUs %s, %u transfers of %u bytes, %u repetitions\n",
              host.cpu_model().c_str(), host.cpu_count(), host.kernel().c_str(),
              host.build().c_str(), options.cpus.c_str(), options.open, options.size_bytes,
              options.repetitions);
  std::printf("%-10s %-6s %12s %10s %10s %10s\n", "", "", "median MB/s", "lowest", "highest",
              "x memcpy");
  for (size_t row = 0; row < std::size(kRows); ++row) {
    const auto [lowest, highest] = std::minmax_element(rates[row].begin(), rates[row].end());
    std::printf("%-10s %-6s %12.0f %10.0f %10.0f %10.2f\n", kRows[row].way, kRows[row].kind,
                Median(rates[row]), *lowest, *highest, Median(ratios[row]));
  }
}

int Main(std::vector<std::string> arguments) {
  std::vector<std::string> words;
  while (!arguments.empty() && arguments[0].rfind("--", 0) != 0) {
    words.push_back(arguments[0]);
    arguments.erase(arguments.begin());
  }
  Options options;
  tools::CommandLine line(
      "usage: bulk_rates [options]\nBulk data between two processes: plain, pipelined, serial, "
      "software.\n");
  line.Add("cpus", &options.cpus, "CPU of who moves the data and CPU of who lends the memory");
  line.Add("repetitions", &options.repetitions, 1, 10'000, "of each way");
  line.Add("size", &options.size_bytes, 4096, 64 << 20, "bytes of data of a transfer");
  line.Add("open", &options.open, 1, 64, "transfers at once");
  line.Add("seconds", &options.time, absl::Milliseconds(10), absl::Minutes(1),
           "of each repetition");
  absl::Status status = line.Parse(arguments);
  int cpus[2] = {};
  const std::vector<std::string> texts = absl::StrSplit(options.cpus, ',');
  if (status.ok() && (texts.size() != 2 || !absl::SimpleAtoi(texts[0], &cpus[0]) ||
                      !absl::SimpleAtoi(texts[1], &cpus[1]))) {
    status = absl::InvalidArgumentError("--cpus takes two numbers, such as 0,1");
  }
  if (status.ok() && options.size_bytes % kDif.block_bytes != 0) {
    status = absl::InvalidArgumentError("--size takes whole blocks of 4096 bytes");
  }
  if (!status.ok()) {
    std::fprintf(stderr, "bulk_rates: %s\n", std::string(status.message()).c_str());
    return tools::kExitUsage;
  }
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return tools::kExitOk;
  }
  if (words.empty()) {
    Run(options);
    return tools::kExitOk;
  }
  const bool lend = words[0] == "lend";
  CheckOk(tools::PinToCpu(cpus[lend ? 1 : 0]));
  if (lend) Lend(words.at(1), words.at(2), options);
  std::printf("%.1f\n", RateOf(words.at(1), words.at(2), options));
  std::fflush(stdout);
  return tools::kExitOk;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) { return sluice::benchmarks::Main({argv + 1, argv + argc}); }

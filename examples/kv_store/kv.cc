// SPDX-License-Identifier: Apache-2.0
//
// kv: puts and gets.
//
//   kv put KEY VALUE        kv get KEY
//   kv churn KEY TIMES      puts values of one letter, a to z and again
//   kv watch KEY TIMES      gets it so often, and says whether each value was of one letter
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "examples/kv_store/kv_table.h"

ABSL_FLAG(std::string, server, "127.0.0.1:7474", "host:port of a kv_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace sluice::examples::kv_store {
namespace {

constexpr size_t kChurnBytes = 400;
constexpr char kWords[] = "put KEY VALUE, get KEY, churn KEY TIMES, watch KEY TIMES";

absl::Status Churn(KvTable& table, const std::string& key, int times) {
  for (int i = 0; i < times; ++i) {
    const char letter = static_cast<char>('a' + i % 26);
    if (absl::Status status = table.Put(key, std::string(kChurnBytes, letter)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Watch(KvTable& table, const std::string& key, int times) {
  for (int i = 0; i < times; ++i) {
    const auto value = table.Get(key);
    if (!value.ok()) return value.status();
    if (value->size() != kChurnBytes ||
        value->find_first_not_of(value->front()) != std::string::npos) {
      return absl::DataLossError("a value that no client has put: " + *value);
    }
  }
  std::printf("%d values, each of one letter; read while written, and read again: %llu\n", times,
              static_cast<unsigned long long>(table.torn()));
  return absl::OkStatus();
}

absl::Status Run(const std::vector<char*>& arguments) {
  const std::vector<std::string> words(arguments.begin() + 1, arguments.end());
  const std::string what = words.empty() ? "" : words[0];
  int times = 0;
  const bool counts = what == "churn" || what == "watch";
  const bool fits =
      (what == "get" && words.size() == 2) || (what == "put" && words.size() == 3) ||
      (counts && words.size() == 3 && absl::SimpleAtoi(words[2], &times) && times > 0);
  if (!fits) return absl::InvalidArgumentError(kWords);
  auto table = KvTable::Connect(absl::GetFlag(FLAGS_server), absl::GetFlag(FLAGS_device));
  if (!table.ok()) return table.status();
  if (what == "put") return (*table)->Put(words[1], words[2]);
  if (what == "churn") return Churn(**table, words[1], times);
  if (what == "watch") return Watch(**table, words[1], times);
  const auto value = (*table)->Get(words[1]);
  if (value.ok()) std::printf("%s\n", value->c_str());
  return value.status();
}

}  // namespace
}  // namespace sluice::examples::kv_store

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      absl::StrCat("puts values into a kv_server's table, and reads them there\n\n  ",
                   sluice::examples::kv_store::kWords));
  const absl::Status status = sluice::examples::kv_store::Run(absl::ParseCommandLine(argc, argv));
  if (status.ok()) return 0;
  std::fprintf(stderr, "kv: %s\n", std::string(status.message()).c_str());
  return 1;
}

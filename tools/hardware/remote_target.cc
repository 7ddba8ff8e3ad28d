// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/remote_target.h"

#include <cstring>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr absl::Duration kAnswer = absl::Seconds(20);
constexpr size_t kMaxTargets = 8;
constexpr uint64_t kMaxWaitMs = 10'000;

absl::Status NoAnswer(const Rendezvous& rendezvous, const std::string& line) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("invalid answer from ", rendezvous.peer(), ": '", line, "'"),
                     {.layer = "hardware",
                      .operation = "rendezvous",
                      .cause = "it is of another release",
                      .remedy = "run the same release on both hosts"});
}

// The words behind "ok".
absl::StatusOr<std::vector<std::string>> Ask(Rendezvous& rendezvous, const std::string& request,
                                             absl::Duration timeout = kAnswer) {
  if (absl::Status status = rendezvous.Send(request); !status.ok()) return status;
  auto line = rendezvous.Receive(timeout);
  if (!line.ok()) return line.status();
  std::vector<std::string> words = absl::StrSplit(*line, ' ');
  if (words[0] == "error" && words.size() > 1) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       "at the peer: " + absl::StrJoin(words.begin() + 1, words.end(), " "),
                       {.layer = "hardware", .operation = "rendezvous"});
  }
  if (words[0] != "ok") return NoAnswer(rendezvous, *line);
  words.erase(words.begin());
  return words;
}

bool Numbers(const std::vector<std::string>& words, size_t from, std::vector<uint64_t>* numbers) {
  for (size_t i = from; i < words.size(); ++i) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(words[i], &number)) return false;
    numbers->push_back(number);
  }
  return true;
}

bool IsGid(const std::string& hex) {
  return hex.size() == 2 * sizeof(ibv_gid) &&
         hex.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string Hex(const ibv_gid& gid) {
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(gid.raw), 16));
}

// One line, whatever the message has.
std::string ErrorLine(const absl::Status& status) {
  std::string line = absl::StrCat("error ", std::string(status.message()));
  for (char& c : line) {
    if (c < 0x20 || c >= 0x7f) c = ' ';
  }
  return line.substr(0, 1000);
}

using Targets = std::map<uint64_t, std::unique_ptr<Target>>;

absl::StatusOr<std::string> MakeTarget(const Nic& nic, const std::vector<uint64_t>& numbers,
                                       uint64_t id, Targets* targets) {
  const auto word = [&](size_t i) {
    return static_cast<uint32_t>(std::min<uint64_t>(numbers[i], UINT32_MAX));
  };
  auto target = LocalTarget::Create(nic, {.receives = word(0),
                                          .receive_bytes = word(1),
                                          .mtu_bytes = word(2),
                                          .cqe = word(3),
                                          .other_gid = numbers[4] != 0});
  if (!target.ok()) return target.status();
  const TargetAddress& at = (*target)->address();
  const std::string answer =
      absl::StrCat("ok ", id, " ", Hex(at.gid), " ", at.lid, " ", at.dctn, " ", at.dc_key, " ",
                   at.memory, " ", at.rkey, " ", at.cqe);
  (*targets)[id] = *std::move(target);
  return answer;
}

// What a target that exists is asked for; nothing: that is no request.
std::optional<absl::StatusOr<std::string>> Serve(Target& target, const std::string& word,
                                                 const std::vector<uint64_t>& numbers) {
  const auto done = [](const absl::Status& status) -> absl::StatusOr<std::string> {
    if (!status.ok()) return status;
    return std::string("ok");
  };
  if (word == "post" && numbers.size() == 2) {
    return done(target.PostReceives(static_cast<uint32_t>(std::min<uint64_t>(numbers[1], 4096))));
  }
  if (word == "watch" && numbers.size() == 2) {
    return done(
        target.BeginWatch(static_cast<uint32_t>(std::min<uint64_t>(numbers[1], UINT32_MAX))));
  }
  if (word == "receive" && numbers.size() == 2) {
    const auto receipt = target.AwaitReceive(
        absl::Milliseconds(static_cast<int64_t>(std::min(numbers[1], kMaxWaitMs))));
    if (!receipt.ok()) return receipt.status();
    if (!receipt->has_value()) return std::string("ok");
    return absl::StrCat("ok ", static_cast<int>((*receipt)->status), " ", (*receipt)->bytes);
  }
  if (word == "unwatch" && numbers.size() == 1) {
    const auto count = target.EndWatch();
    if (!count.ok()) return count.status();
    return absl::StrCat("ok ", count->seen, " ", count->torn, " ", count->torn_blocks);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> RemoteTarget::Create(Rendezvous& rendezvous,
                                                             const TargetOptions& options) {
  const auto words =
      Ask(rendezvous,
          absl::StrCat("target ", options.receives, " ", options.receive_bytes, " ",
                       options.mtu_bytes, " ", options.cqe, " ", options.other_gid ? 1 : 0));
  if (!words.ok()) return words.status();
  const std::string line = absl::StrJoin(*words, " ");
  std::vector<uint64_t> numbers;
  if (words->size() != 8 || !IsGid((*words)[1])) return NoAnswer(rendezvous, line);
  std::vector<std::string> rest = *words;
  const std::string gid = absl::HexStringToBytes(rest[1]);
  rest.erase(rest.begin() + 1);
  if (!Numbers(rest, 0, &numbers)) return NoAnswer(rendezvous, line);
  auto target = std::unique_ptr<RemoteTarget>(new RemoteTarget(rendezvous));
  target->id_ = rest[0];
  TargetAddress& at = target->address_;
  std::memcpy(at.gid.raw, gid.data(), sizeof(at.gid.raw));
  at.lid = static_cast<uint16_t>(numbers[1]);
  at.dctn = static_cast<uint32_t>(numbers[2]);
  at.dc_key = numbers[3];
  at.memory = numbers[4];
  at.rkey = static_cast<uint32_t>(numbers[5]);
  at.cqe = static_cast<uint32_t>(numbers[6]);
  return target;
}

// A peer that has gone shows at the next request.
RemoteTarget::~RemoteTarget() { Ask(rendezvous_, "drop " + id_).IgnoreError(); }

absl::Status RemoteTarget::PostReceives(uint32_t count) {
  return Ask(rendezvous_, absl::StrCat("post ", id_, " ", count)).status();
}

absl::StatusOr<std::optional<Receipt>> RemoteTarget::AwaitReceive(absl::Duration timeout) {
  const auto words =
      Ask(rendezvous_, absl::StrCat("receive ", id_, " ", absl::ToInt64Milliseconds(timeout)),
          timeout + kAnswer);
  if (!words.ok()) return words.status();
  std::vector<uint64_t> numbers;
  if (!Numbers(*words, 0, &numbers) || (numbers.size() != 2 && !numbers.empty())) {
    return NoAnswer(rendezvous_, absl::StrJoin(*words, " "));
  }
  if (numbers.empty()) return std::nullopt;
  return Receipt{static_cast<ibv_wc_status>(numbers[0]), static_cast<uint32_t>(numbers[1])};
}

absl::Status RemoteTarget::BeginWatch(uint32_t bytes) {
  return Ask(rendezvous_, absl::StrCat("watch ", id_, " ", bytes)).status();
}

absl::StatusOr<WatchCount> RemoteTarget::EndWatch() {
  const auto words = Ask(rendezvous_, "unwatch " + id_);
  if (!words.ok()) return words.status();
  std::vector<uint64_t> numbers;
  if (!Numbers(*words, 0, &numbers) || numbers.size() != 3) {
    return NoAnswer(rendezvous_, absl::StrJoin(*words, " "));
  }
  return WatchCount{numbers[0], numbers[1], numbers[2]};
}

absl::Status ServeTargets(Rendezvous& rendezvous, const Nic& nic, absl::Duration patience) {
  Targets targets;
  uint64_t next = 1;
  while (true) {
    const auto line = rendezvous.Receive(patience);
    if (!line.ok()) return line.status();
    if (*line == "done") return rendezvous.Send("ok");
    const std::vector<std::string> words = absl::StrSplit(*line, ' ');
    std::vector<uint64_t> numbers;
    std::optional<absl::StatusOr<std::string>> answer;
    if (Numbers(words, 1, &numbers)) {
      const auto at = numbers.empty() ? targets.end() : targets.find(numbers[0]);
      if (words[0] == "target" && numbers.size() == 5 && targets.size() < kMaxTargets) {
        answer = MakeTarget(nic, numbers, next++, &targets);
      } else if (words[0] == "drop" && at != targets.end()) {
        targets.erase(at);
        answer = std::string("ok");
      } else if (at != targets.end()) {
        answer = Serve(*at->second, words[0], numbers);
      }
    }
    if (!answer.has_value()) {
      const absl::Status status = base::Error(
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("invalid request from ", rendezvous.peer(), ": '", line->substr(0, 60), "'"),
          {.layer = "hardware",
           .operation = "rendezvous",
           .cause = "it is of another release",
           .remedy = "run the same release on both hosts"});
      rendezvous.Send(ErrorLine(status)).IgnoreError();
      return status;
    }
    const absl::Status sent =
        rendezvous.Send(answer->ok() ? **answer : ErrorLine(answer->status()));
    if (!sent.ok()) return sent;
  }
}

absl::Status EndTargets(Rendezvous& rendezvous) { return Ask(rendezvous, "done").status(); }

}  // namespace sluice::hardware

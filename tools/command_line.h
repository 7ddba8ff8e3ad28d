// SPDX-License-Identifier: Apache-2.0
//
// CommandLine: options of a tool, `--name=value` or `--name value`. A wrong one is an error that
// says what is allowed and, for a misspelt name, which one was probably meant. Exit codes are the
// same for all tools.
#ifndef SLUICE_TOOLS_COMMAND_LINE_H_
#define SLUICE_TOOLS_COMMAND_LINE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sluice::tools {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

class CommandLine {
 public:
  // `head`: "sluice_perf rpc: …", the first lines of the help text.
  explicit CommandLine(std::string head) : head_(std::move(head)) {}

  // The variable holds the default. Sizes in [low, high].
  void Add(std::string name, std::string* value, std::string meaning);
  void Add(std::string name, uint32_t* value, uint32_t low, uint32_t high, std::string meaning);
  // A switch: alone, or with =true or =false.
  void Add(std::string name, bool* value, std::string meaning);
  // Alone (then it is empty), or with a value behind =.
  void Add(std::string name, std::optional<std::string>* value, std::string meaning);
  // "5", "5s", "300ms"; a bare number is seconds. In [low, high].
  void Add(std::string name, absl::Duration* value, absl::Duration low, absl::Duration high,
           std::string meaning);

  // INVALID_ARGUMENT: the message is for the user. OK with help(): asked for the help text.
  absl::Status Parse(const std::vector<std::string>& arguments);
  bool help() const { return help_; }
  std::string HelpText() const;

 private:
  struct Option {
    std::string name;
    std::string default_text;
    std::string meaning;
    std::function<std::string(const std::string&)> set;  // what is wrong with the value, or empty
    bool alone = false;  // it needs no value, and then has this one:
    std::string alone_value = "true";
  };

  absl::Status Unknown(const std::string& argument, const std::string& name) const;

  const std::string head_;
  std::vector<Option> options_;
  bool help_ = false;
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_COMMAND_LINE_H_

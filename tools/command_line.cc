// SPDX-License-Identifier: Apache-2.0
#include "tools/command_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/base/error.h"
#include "transport/base/nearest.h"

namespace sluice::tools {
namespace {

absl::Status Wrong(const std::string& what, const std::string& cause, const std::string& remedy) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, what,
      {.layer = "tools", .operation = "command line", .cause = cause, .remedy = remedy});
}

bool ParseDuration(const std::string& text, absl::Duration* value) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    *value = absl::Seconds(seconds);
    return true;
  }
  return absl::ParseDuration(text, value);
}

}  // namespace

void CommandLine::Add(std::string name, std::string* value, std::string meaning) {
  options_.push_back(
      {std::move(name), *value, std::move(meaning), [value](const std::string& text) {
         *value = text;
         return text.empty() ? "it is empty" : "";
       }});
}

void CommandLine::Add(std::string name, bool* value, std::string meaning) {
  options_.push_back({std::move(name), *value ? "true" : "false", std::move(meaning),
                      [value](const std::string& text) -> std::string {
                        *value = text == "true";
                        return *value || text == "false" ? "" : "allowed are true and false";
                      },
                      /*alone=*/true});
}

void CommandLine::Add(std::string name, std::optional<std::string>* value, std::string meaning) {
  options_.push_back({std::move(name), "", std::move(meaning),
                      [value](const std::string& text) -> std::string {
                        *value = text;
                        return "";
                      },
                      /*alone=*/true,
                      /*alone_value=*/""});
}

void CommandLine::Add(std::string name, uint32_t* value, uint32_t low, uint32_t high,
                      std::string meaning) {
  options_.push_back({std::move(name), absl::StrCat(*value), std::move(meaning),
                      [value, low, high](const std::string& text) -> std::string {
                        uint32_t number = 0;
                        if (absl::SimpleAtoi(text, &number) && number >= low && number <= high) {
                          *value = number;
                          return "";
                        }
                        return absl::StrCat("allowed is a number from ", low, " to ", high);
                      }});
}

void CommandLine::Add(std::string name, absl::Duration* value, absl::Duration low,
                      absl::Duration high, std::string meaning) {
  options_.push_back({std::move(name), absl::FormatDuration(*value), std::move(meaning),
                      [value, low, high](const std::string& text) -> std::string {
                        absl::Duration duration;
                        if (ParseDuration(text, &duration) && duration >= low && duration <= high) {
                          *value = duration;
                          return "";
                        }
                        return absl::StrCat("allowed is a time from ", absl::FormatDuration(low),
                                            " to ", absl::FormatDuration(high),
                                            ", such as 5s or 300ms");
                      }});
}

absl::Status CommandLine::Parse(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      help_ = true;
      return absl::OkStatus();
    }
    if (argument.rfind("--", 0) != 0) {
      return Wrong(absl::StrCat("\"", argument, "\" not understood"), "options begin with --",
                   "--help lists them");
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto option = std::find_if(options_.begin(), options_.end(),
                                     [&](const Option& o) { return o.name == name; });
    if (option == options_.end()) return Unknown(argument, name);
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (option->alone) {
      value = option->alone_value;
    } else if (i + 1 < arguments.size()) {
      value = arguments[++i];
    } else {
      return Wrong(absl::StrCat("--", name, " has no value"), option->meaning,
                   absl::StrCat("write --", name, "=VALUE"));
    }
    if (std::string problem = option->set(value); !problem.empty()) {
      return Wrong(absl::StrCat("--", name, "=", value, " refused"), problem, "change the value");
    }
  }
  return absl::OkStatus();
}

absl::Status CommandLine::Unknown(const std::string& argument, const std::string& name) const {
  std::vector<std::string> names;
  for (const Option& option : options_) names.push_back(option.name);
  const std::string nearest = base::Nearest(name, names);
  return Wrong(
      absl::StrCat("unknown option \"", argument, "\""),
      nearest.empty() ? "there is nothing like it" : absl::StrCat("did you mean --", nearest, "?"),
      "--help lists all options");
}

std::string CommandLine::HelpText() const {
  std::string text = head_ + "\n";
  for (const Option& option : options_) {
    absl::StrAppendFormat(&text, "  --%-12s %s (default: %s)\n", option.name, option.meaning,
                          option.default_text.empty() ? "none" : option.default_text);
  }
  return text;
}

}  // namespace sluice::tools

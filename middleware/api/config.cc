// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "proto/config.pb.h"
#include "transport/base/error.h"
#include "transport/base/nearest.h"

namespace sluice {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status Bad(std::string_view what, std::string_view cause, std::string_view remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument, what,
                     {.layer = "config",
                      .operation = "read options",
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = true});
}

// Collects errors and warnings of the parser of the text format.
class Complaints final : public google::protobuf::io::ErrorCollector {
 public:
  struct Complaint {
    int line;
    std::string text;
  };
  void AddError(int line, google::protobuf::io::ColumnNumber, const std::string& text) override {
    errors.push_back({line + 1, text});
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber, const std::string& text) override {
    warnings.push_back({line + 1, text});
  }
  std::vector<Complaint> errors;
  std::vector<Complaint> warnings;
};

std::string ValueOf(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(reflection->GetUInt32(message, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(reflection->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return absl::StrCat(reflection->GetDouble(message, field));
    default:
      return reflection->GetString(message, field);
  }
}

// Appends the path and the value of each field that is set.
void Collect(const Message& message, const std::string& prefix,
             std::vector<std::pair<std::string, std::string>>* out) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = prefix + field->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Collect(message.GetReflection()->GetMessage(message, field), name + ".", out);
    } else {
      out->emplace_back(name, ValueOf(message, field));
    }
  }
}

std::string VariableOf(const std::string& option) {
  return "SLUICE_" + absl::AsciiStrToUpper(absl::StrReplaceAll(option, {{".", "_"}}));
}

void AddAll(const std::string& prefix, std::vector<Option> options, std::vector<Option>* all) {
  for (Option& option : options) {
    option.name = prefix + option.name;
    all->push_back(std::move(option));
  }
}

}  // namespace

const char* Name(Config::Source source) {
  static constexpr const char* kNames[] = {"default", "environment", "file", "flag", "code"};
  return kNames[static_cast<int>(source)];
}

std::vector<Option> Config::All() {
  std::vector<Option> all;
  AddAll("channel.", OptionsOf(&channel), &all);
  AddAll("server.", OptionsOf(&server), &all);
  AddAll("messenger.", OptionsOf(&messenger), &all);
  return all;
}

void Config::Warn(const std::string& where, const std::string& what, const std::string& name,
                  const std::vector<std::string>& candidates) {
  const std::string nearest = base::Nearest(name, candidates);
  warnings_.push_back(
      absl::StrCat(where, ": unknown ", what, " \"", name, "\"",
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
}

absl::Status Config::Set(const std::string& name, std::string_view value, Source source) {
  std::vector<std::string> names;
  for (const Option& option : All()) {
    if (option.name != name) {
      names.push_back(option.name);
      continue;
    }
    const auto before = given_.find(name);
    if (before != given_.end() && before->second.source > source) return absl::OkStatus();
    if (const std::string wrong = option.Set(value); !wrong.empty()) {
      return Bad(absl::StrCat("option ", name, " is \"", std::string(value), "\""), wrong,
                 absl::StrCat("allowed is ", option.allowed));
    }
    given_[name] = {source, option.Text()};
    return absl::OkStatus();
  }
  const std::string nearest = base::Nearest(name, names);
  return Bad(absl::StrCat("there is no option ", name),
             nearest.empty() ? "no name is like it" : absl::StrCat("did you mean ", nearest, "?"),
             "sluice_info --config lists all options");
}

absl::Status Config::ReadText(const std::string& text, const std::string& name) {
  ConfigFile file;
  Complaints complaints;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&complaints);
  parser.AllowUnknownField(true);
  if (!parser.ParseFromString(text, &file)) {
    const Complaints::Complaint& first = complaints.errors.front();
    return Bad(absl::StrCat(name, ":", first.line, " can't be read"), first.text,
               "it has to be a sluice.ConfigFile in protobuf's text format (proto/config.proto)");
  }
  std::vector<std::pair<std::string, std::string>> values;
  Collect(file, "", &values);
  Config tried = *this;  // applied only if all options are valid
  for (const auto& [option, value] : values) {
    if (absl::Status status = tried.Set(option, value, Source::kFile); !status.ok()) {
      return base::Prefix(status, name);
    }
  }
  *this = std::move(tried);
  for (const Complaints::Complaint& warning : complaints.warnings) {
    // … type "sluice.ServerConfig" has no field named "slow_cal".
    const std::vector<std::string> parts = absl::StrSplit(warning.text, '"');
    if (parts.size() < 4) continue;
    std::vector<std::string> candidates;
    const Descriptor* type =
        ConfigFile::descriptor()->file()->pool()->FindMessageTypeByName(parts[1]);
    for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
      candidates.push_back(type->field(i)->name());
    }
    Warn(absl::StrCat(name, ":", warning.line), "option", parts[3], candidates);
  }
  return absl::OkStatus();
}

absl::Status Config::ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::stringstream text;
  // To copy an empty file would set the failure bit of `text`, so it is not copied.
  const bool empty = file.is_open() && file.peek() == std::ifstream::traits_type::eof();
  if (!empty) text << file.rdbuf();
  if (!file.is_open() || file.bad() || text.fail()) {
    return base::ErrnoError(errno == 0 ? EIO : errno, absl::StrCat("reading ", path),
                            {.layer = "config",
                             .operation = "read options",
                             .remedy = "check the name, and who may read it"});
  }
  return ReadText(text.str(), path);
}

absl::Status Config::ReadEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return ReadEnvironment(variables);
}

absl::Status Config::ReadEnvironment(const std::vector<std::string>& variables) {
  absl::Status first;
  std::map<std::string, std::string> options;  // names of options, by variable
  std::vector<std::string> names;
  for (const Option& option : All()) {
    names.push_back(VariableOf(option.name));
    options.emplace(names.back(), option.name);
  }
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool ours = name.rfind("SLUICE_CHANNEL_", 0) == 0 ||
                      name.rfind("SLUICE_SERVER_", 0) == 0 ||
                      name.rfind("SLUICE_MESSENGER_", 0) == 0;
    if (!ours || equals == std::string::npos) continue;
    const auto found = options.find(name);
    if (found == options.end()) {
      Warn("environment", "variable", name, names);
      continue;
    }
    absl::Status status = Set(found->second, variable.substr(equals + 1), Source::kEnvironment);
    if (!status.ok() && first.ok()) first = base::Prefix(status, name);
  }
  return first;
}

std::vector<Config::Setting> Config::Settings() const {
  Config now = *this;
  Config fresh;
  const std::vector<Option> defaults = fresh.All();
  std::vector<Setting> settings;
  size_t at = 0;
  for (const Option& option : now.All()) {
    const std::string value = option.Text();
    const std::string default_value = defaults[at++].Text();
    const auto given = given_.find(option.name);
    Source source = value == default_value ? Source::kDefault : Source::kCode;
    if (given != given_.end() && given->second.text == value) source = given->second.source;
    settings.push_back({option.name, value, source, default_value, option.allowed, option.meaning});
  }
  return settings;
}

}  // namespace sluice

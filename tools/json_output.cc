// SPDX-License-Identifier: Apache-2.0
#include "tools/json_output.h"

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "transport/base/error.h"

namespace sluice::tools {

absl::Status WriteJson(const google::protobuf::Message& message, const std::string& path) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
      !status.ok()) {
    return base::Error(absl::StatusCode::kInternal, "result not printed",
                       {.layer = "tools", .operation = "json", .cause = status.ToString()});
  }
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  bool written = file != nullptr && std::fwrite(json.data(), 1, json.size(), file) == json.size() &&
                 std::fflush(file) == 0;
  const int error_number = errno;
  if (file != nullptr && file != stdout) written = std::fclose(file) == 0 && written;
  if (written) return absl::OkStatus();
  return base::ErrnoError(
      error_number, absl::StrCat("writing ", path),
      {.layer = "tools", .operation = "json", .remedy = "choose another --json"});
}

absl::Status ReadJson(const std::string& path, google::protobuf::Message* message) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();  // an empty file fails here too
  if (!file.is_open() || text.fail()) {
    return base::ErrnoError(errno != 0 ? errno : EINVAL, absl::StrCat("reading ", path),
                            {.layer = "tools",
                             .operation = "json",
                             .cause = errno != 0 ? "the file cannot be read" : "the file is empty",
                             .remedy = "name a file that was written with --json"});
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(text.str(), message, options);
  if (status.ok()) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(path, " is not a ", message->GetDescriptor()->full_name(), " as JSON"),
      {.layer = "tools",
       .operation = "json",
       .cause = status.ToString(),
       .remedy = "name a file that was written with --json"});
}

}  // namespace sluice::tools

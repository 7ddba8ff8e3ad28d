// SPDX-License-Identifier: Apache-2.0
//
// Config: reads options from files, flags and the environment.
//
//   sluice::Config config;
//   absl::Status status = config.ReadEnvironment();            // read only by this call
//   status.Update(config.ReadFile("/etc/orders/sluice.textproto"));
//   status.Update(config.Set("server.limits.receive_buffers", flag, sluice::Config::Source::kFlag));
//   if (!status.ok()) return status;
//   config.server.slow_call = absl::Milliseconds(20);          // code has the last word
//   auto server = sluice::Server::Create(config.server);
//   for (const std::string& warning : config.warnings()) …
//
// Precedence    Flag, then file, then environment, then default, regardless of the order of reading.
//               Values that code sets afterwards replace all of them. Create() checks ranges.
// Names         As in options.h, with the prefix "channel.", "server." or "messenger."; in the
//               environment SLUICE_SERVER_SLOW_CALL. An unknown name is a warning that suggests the
//               nearest name. It is not an error, because one file may serve several releases.
// Ownership     A value of the user's.
// Threads       One at a time.
#ifndef SLUICE_MIDDLEWARE_API_CONFIG_H_
#define SLUICE_MIDDLEWARE_API_CONFIG_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "middleware/api/option_table.h"
#include "middleware/api/options.h"

namespace sluice {

class Config {
 public:
  enum class Source { kDefault, kEnvironment, kFile, kFlag, kCode };

  ChannelOptions channel;
  ServerOptions server;
  MessengerOptions messenger;

  // Reads a sluice.ConfigFile in protobuf's text format (proto/config.proto).
  // Errors: INVALID_ARGUMENT (with file, line and reason; then no option of the file is taken),
  // NOT_FOUND and others (the file cannot be read).
  absl::Status ReadFile(const std::string& path);
  // The same for `text`. Errors name it `name`.
  absl::Status ReadText(const std::string& text, const std::string& name);

  // Reads variables that begin with SLUICE_CHANNEL_, SLUICE_SERVER_ or SLUICE_MESSENGER_: of this
  // process, or `variables` ("NAME=value"). INVALID_ARGUMENT: a value cannot be parsed; the other
  // variables are taken.
  absl::Status ReadEnvironment();
  absl::Status ReadEnvironment(const std::vector<std::string>& variables);

  // Sets one option; `name` as in "server.slow_call". INVALID_ARGUMENT: no such option, or the
  // value cannot be parsed.
  absl::Status Set(const std::string& name, std::string_view value, Source source);

  const std::vector<std::string>& warnings() const { return warnings_; }

  // All options with their current values. A value that is neither the default nor was read has the
  // source kCode.
  struct Setting {
    std::string name;
    std::string value;
    Source source;
    std::string default_value;
    std::string allowed;
    std::string meaning;
  };
  std::vector<Setting> Settings() const;

 private:
  // Options with their full names.
  std::vector<Option> All();
  struct Given {
    Source source;
    std::string text;  // as Option::Text() returns it
  };
  void Warn(const std::string& where, const std::string& what, const std::string& name,
            const std::vector<std::string>& candidates);

  std::map<std::string, Given> given_;
  std::vector<std::string> warnings_;
};

// "default", "environment", "file", "flag", "code".
const char* Name(Config::Source source);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CONFIG_H_

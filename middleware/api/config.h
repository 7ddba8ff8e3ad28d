// SPDX-License-Identifier: Apache-2.0
//
// Config: options from files, flags and the environment, for programs that want that.
//
//   sluice::Config config;
//   absl::Status status = config.ReadEnvironment();            // only because it is asked for
//   status.Update(config.ReadFile("/etc/orders/sluice.textproto"));
//   status.Update(config.Set("server.limits.receive_buffers", flag, sluice::Config::Source::kFlag));
//   if (!status.ok()) return status;
//   config.server.slow_call = absl::Milliseconds(20);          // code has the last word
//   auto server = sluice::Server::Create(config.server);
//   for (const std::string& warning : config.warnings()) …
//
// What counts   Flag before file before environment before default, in whatever order they are read. Create() checks ranges.
// Names         As in options.h, behind "channel.", "server." or "messenger."; in the environment SLUICE_SERVER_SLOW_CALL.
//               A name that is not known is a warning that names the one that was probably meant, not an error: a file may serve
//               several releases.
// Thread-safety None.
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

  // A sluice.ConfigFile in protobuf's text format (proto/config.proto). INVALID_ARGUMENT: file, line, and what is wrong there;
  // then nothing of it is taken. NOT_FOUND and others: it can't be read.
  absl::Status ReadFile(const std::string& path);
  // The same, given. `name` stands for it in errors.
  absl::Status ReadText(const std::string& text, const std::string& name);

  // Variables that begin with SLUICE_CHANNEL_, SLUICE_SERVER_ or SLUICE_MESSENGER_: this process's, or those given as
  // "NAME=value". INVALID_ARGUMENT: one can't be read; the others are taken.
  absl::Status ReadEnvironment();
  absl::Status ReadEnvironment(const std::vector<std::string>& variables);

  // "server.slow_call". INVALID_ARGUMENT: there is no such option, or it can't be read.
  absl::Status Set(const std::string& name, std::string_view value, Source source);

  const std::vector<std::string>& warnings() const { return warnings_; }

  // All of them, as they are now. What is neither the default nor what was read has been set in code.
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
  // By whole name.
  std::vector<Option> All();
  struct Given {
    Source source;
    std::string text;  // as Option::Text() says it
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

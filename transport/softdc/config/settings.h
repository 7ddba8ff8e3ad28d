// SPDX-License-Identifier: Apache-2.0
//
// Settings: one sluice.softdc.Config, with access to its members by name.
//
// It uses no generated class: that class would register its file with the process, and a program that contains softdc may be preloaded with
// softdc as well (preload/). The description of the message is part of this library (BUILD) and registered nowhere.
//
// Threads       Any, with different objects.
#ifndef SLUICE_TRANSPORT_SOFTDC_CONFIG_SETTINGS_H_
#define SLUICE_TRANSPORT_SOFTDC_CONFIG_SETTINGS_H_

#include <cstdint>
#include <memory>

#include "google/protobuf/message.h"

namespace sluice::softdc {

class Settings {
 public:
  Settings();  // nothing is set

  // As a number: what is set, or the default. Group and name exist; a truth is 0 or 1.
  int64_t Get(const char* group, const char* name) const;
  bool Has(const char* group, const char* name) const;
  void Set(const char* group, const char* name, int64_t value);

  // For text; the object's own.
  google::protobuf::Message& message() { return *message_; }

 private:
  const google::protobuf::Message& Group(const char* group) const;

  std::unique_ptr<google::protobuf::Message> message_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_SETTINGS_H_

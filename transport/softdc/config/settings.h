// SPDX-License-Identifier: Apache-2.0
//
// Settings: a sluice.softdc.Config, with access to its members by name.
//
// It uses no generated class: that class would register its file with the process, and a program that
// contains softdc may also be preloaded with softdc (preload/). The description of the message is part of
// this library (BUILD) and not registered.
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

  // Returns a setting as a number: the set value, or the default. Group and name must exist. A bool is 0 or
  // 1.
  int64_t Get(const char* group, const char* name) const;
  bool Has(const char* group, const char* name) const;
  void Set(const char* group, const char* name, int64_t value);

  // Returns the message, for conversion from and to text. The object owns it.
  google::protobuf::Message& message() { return *message_; }

 private:
  const google::protobuf::Message& Group(const char* group) const;

  std::unique_ptr<google::protobuf::Message> message_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_SETTINGS_H_

// SPDX-License-Identifier: Apache-2.0
//
// ReflectedServices: the services of a server with a reflection service, and messages of their methods, without a .proto.
//
// Ownership     The caller. It outlives messages that were created with it.
// Threads       One at a time.
#ifndef SLUICE_TOOLS_REFLECTED_SERVICES_H_
#define SLUICE_TOOLS_REFLECTED_SERVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"
#include "middleware/api/channel.h"

namespace sluice::tools {

class ReflectedServices {
 public:
  // Each question takes `timeout` at most.
  ReflectedServices(std::shared_ptr<Channel> channel, absl::Duration timeout)
      : channel_(std::move(channel)), timeout_(timeout) {}

  absl::StatusOr<std::vector<std::string>> Names() const;
  absl::StatusOr<const google::protobuf::ServiceDescriptor*> Service(const std::string& name);
  // "package.Service/Method" or "/package.Service/Method".
  absl::StatusOr<const google::protobuf::MethodDescriptor*> Method(std::string path);
  std::unique_ptr<google::protobuf::Message> NewMessage(const google::protobuf::Descriptor* type) {
    return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(type)->New());
  }

 private:
  const std::shared_ptr<Channel> channel_;
  const absl::Duration timeout_;
  google::protobuf::DescriptorPool pool_;
  google::protobuf::DynamicMessageFactory factory_{&pool_};
};

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_REFLECTED_SERVICES_H_

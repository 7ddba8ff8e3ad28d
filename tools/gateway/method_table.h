// SPDX-License-Identifier: Apache-2.0
//
// MethodTable: which kind of call each method of a Sluice server is.
//
// Purpose       gRPC's headers do not say whether client or server stream, and a call of Sluice has to. The table asks the
//               reflection service of the server, at the first call of a method, or takes descriptors that the user gives.
//               Forget() makes it ask again. grpc.health.v1.Health stands for sluice.health.v1.Health, whose messages are the
//               same, unless the server has a service of that name.
// Ownership     Gateway. Methods that were found stay valid as long as the table. The table outlives calls of Find().
// Threads       Any.
// Limits        One question at a time for each service; more callers wait for its answer. Each question ends after kTimeout.
#ifndef SLUICE_TOOLS_GATEWAY_METHOD_TABLE_H_
#define SLUICE_TOOLS_GATEWAY_METHOD_TABLE_H_

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/channel.h"

namespace sluice::gateway {

class MethodTable {
 public:
  static constexpr absl::Duration kTimeout = absl::Seconds(5);
  using Found = absl::AnyInvocable<void(absl::StatusOr<const Method*> method) &&>;

  explicit MethodTable(std::shared_ptr<Channel> channel) : channel_(std::move(channel)) {}
  MethodTable(const MethodTable&) = delete;
  MethodTable& operator=(const MethodTable&) = delete;

  // Adds the methods of `file`. Forget() does not remove them.
  void Add(const google::protobuf::FileDescriptorProto& file);

  // Finds "/package.Service/Method". `done` runs once: before this returns, or on the thread that drives the channel.
  // Errors: UNIMPLEMENTED (the server has no such method, or neither reflection nor descriptors say what it is); those of a
  // call to the server.
  void Find(const std::string& path, Found done);

  // The server refused a call of the method as it is known: the next Find() asks again.
  void Forget(const std::string& path);

 private:
  struct Entry {
    Entry(std::string full_name, call::Streams streams, bool idempotent)
        : name(std::move(full_name)), method(name.c_str(), streams, idempotent) {}
    const std::string name;
    const Method method;
  };
  struct Known {
    const Method* method;
    bool is_given;
  };
  struct Waiting {
    std::string path;
    Found done;
  };
  struct Question;

  void AddLocked(const google::protobuf::FileDescriptorProto& file, bool is_given);
  void AddHealthLocked(absl::StatusCode answer);
  void Ask(const std::string& service);
  void OnAnswer(const Question& question, const absl::Status& status);
  absl::StatusOr<const Method*> ResultLocked(const std::string& path,
                                             const absl::Status& answer) const;

  const std::shared_ptr<Channel> channel_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::deque<Entry>
      entries_;  // one for each method and kind of call that was ever seen: calls refer to them
  std::map<std::string, Known> known_;                   // by path
  std::map<std::string, std::vector<Waiting>> waiting_;  // by service that was asked for
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_METHOD_TABLE_H_

// SPDX-License-Identifier: Apache-2.0
//
// Task: a server's handler of one call that is not answered before it returns. It finishes the call exactly once.
#ifndef SLUICE_TESTS_NODES_TASK_H_
#define SLUICE_TESTS_NODES_TASK_H_

#include <cstdint>
#include <string>

#include "middleware/call/server_call.h"
#include "tests/nodes/service.h"

namespace sluice::nodes {

class Server;

class Task final : public call::ServerCall::Observer {
 public:
  Task(Server* server, call::ServerCall* call, uint64_t number);

  void Start();
  void OnCancelled() override;
  void OnReadable() override { Go(); }
  void OnWritable() override { Go(); }
  // Ends the call and this.
  void End(const absl::Status& its);

  uint64_t serial() const { return serial_; }

 private:
  void Go();
  void Send();  // Down
  void Take();  // Up
  void Echo();  // Pipe

  Server* const server_;
  call::ServerCall* const call_;
  const uint64_t number_;
  const uint64_t serial_;
  Text message_;
  uint32_t read_ = 0;
  uint32_t written_ = 0;
  bool waiting_ = false;  // what was read is not written yet
  bool over_ = false;     // nobody waits for it
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_TASK_H_

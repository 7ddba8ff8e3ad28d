// SPDX-License-Identifier: Apache-2.0
//
// Outgoing: one call of a client, from before its start to its end.
#ifndef SLUICE_TESTS_NODES_OUTGOING_H_
#define SLUICE_TESTS_NODES_OUTGOING_H_

#include <cstdint>
#include <string>

#include "middleware/call/client_engine.h"
#include "tests/nodes/service.h"

namespace sluice::nodes {

class Client;

class Outgoing final : private call::ClientStream::Observer {
 public:
  Outgoing(Client* client, uint64_t serial);

  // OK: OnEnd() follows.
  absl::Status Start();
  void Cancel();
  // The plan explains this end.
  bool Explains(const absl::Status& status) const;

  uint64_t serial() const { return serial_; }
  const call::Method& method() const { return *method_; }
  int64_t deadline_ns() const { return deadline_ns_; }
  bool cancelled() const { return cancelled_; }

 private:
  friend class Client;

  void OnReadable() override;
  void OnWritable() override;
  // Of a call that ended with OK.
  void Judge();

  Client* const client_;
  const uint64_t serial_;
  const call::Method* method_;
  Label label_;
  Text request_;
  Text reply_;
  std::string metadata_;
  std::string attachment_;
  call::Buffer buffer_;
  call::Beside beside_;
  call::CallControl control_;
  call::ClientStream stream_;
  uint64_t id_ = 0;
  int64_t deadline_ns_ = 0;
  bool short_deadline_ = false;
  bool cancelled_ = false;
  bool fails_ = false;
  uint32_t count_ = 0;  // messages of a stream
  uint32_t written_ = 0;
  uint32_t read_ = 0;
  bool end_said_ = false;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_OUTGOING_H_

// SPDX-License-Identifier: Apache-2.0
//
// Gatekeeper: a server's interceptor. It reads all that it is given, and knows which calls are inside.
#ifndef SLUICE_TESTS_NODES_GATEKEEPER_H_
#define SLUICE_TESTS_NODES_GATEKEEPER_H_

#include <cstdint>
#include <map>

#include "middleware/call/gate.h"
#include "tests/nodes/ledger.h"

namespace sluice::nodes {

class Gatekeeper final : public call::Gate {
 public:
  explicit Gatekeeper(Ledger* ledger) : ledger_(ledger) {}

  absl::Status OnCall(const call::Incoming& incoming) override;
  void OnEnd(const call::Incoming& incoming, const absl::Status& status, int64_t now_ns) override;
  // Calls that were let in and have not left.
  size_t inside() const { return inside_.size(); }

 private:
  // The sanitizer sees what is freed already.
  void Read(const call::Incoming& incoming);

  Ledger* const ledger_;
  std::map<uint64_t, uint32_t> inside_;  // by serial: attempts
  uint64_t sum_ = 0;
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_GATEKEEPER_H_

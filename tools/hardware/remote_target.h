// SPDX-License-Identifier: Apache-2.0
//
// RemoteTarget: a Target at the peer. ServeTargets: the other end of it.
//
// Purpose       Each call is one line of text over the rendezvous, with one line as the answer: "ok …" or "error TEXT".
// Ownership     The creator. The rendezvous outlives it.
// Threads       That of the rendezvous.
#ifndef SLUICE_TOOLS_HARDWARE_REMOTE_TARGET_H_
#define SLUICE_TOOLS_HARDWARE_REMOTE_TARGET_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/hardware/rendezvous.h"
#include "tools/hardware/target.h"

namespace sluice::hardware {

class RemoteTarget final : public Target {
 public:
  static absl::StatusOr<std::unique_ptr<Target>> Create(Rendezvous& rendezvous,
                                                        const TargetOptions& options);
  ~RemoteTarget() override;
  absl::Status PostReceives(uint32_t count) override;
  absl::StatusOr<std::optional<Receipt>> AwaitReceive(absl::Duration timeout) override;
  absl::Status BeginWatch(uint32_t bytes) override;
  absl::StatusOr<WatchCount> EndWatch() override;

 private:
  explicit RemoteTarget(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  Rendezvous& rendezvous_;
  std::string id_;
};

// Makes targets for the peer's probes until the peer is done. A request that is none ends it with INVALID_ARGUMENT; a peer that says
// nothing for `patience` with DEADLINE_EXCEEDED.
absl::Status ServeTargets(Rendezvous& rendezvous, const Nic& nic,
                          absl::Duration patience = absl::Minutes(4));
// Tells the peer that no more is wanted.
absl::Status EndTargets(Rendezvous& rendezvous);

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_REMOTE_TARGET_H_

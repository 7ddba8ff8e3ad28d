// SPDX-License-Identifier: Apache-2.0
//
// Announcements: the descriptor that becomes readable when an armed signed queue has completions.
//
// Ownership     The owner of the queues. It outlives them.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_INTEGRITY_ANNOUNCEMENTS_H_
#define SLUICE_TRANSPORT_INTEGRITY_ANNOUNCEMENTS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "transport/device/device.h"
#include "transport/verbs/handles.h"

namespace sluice::integrity {

class Announcements {
 public:
  static absl::StatusOr<std::unique_ptr<Announcements>> Create(device::Device& device);

  int fd() const { return channel_->fd; }
  // Reads and acknowledges all pending events. Does not block.
  void Drain();
  ibv_comp_channel* channel() const { return channel_.get(); }

 private:
  explicit Announcements(const verbs::VerbsApi& api) : api_(api) {}

  const verbs::VerbsApi& api_;
  verbs::CompChannel channel_;
};

}  // namespace sluice::integrity

#endif  // SLUICE_TRANSPORT_INTEGRITY_ANNOUNCEMENTS_H_

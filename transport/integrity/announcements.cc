// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/announcements.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "transport/base/error.h"

namespace sluice::integrity {

absl::StatusOr<std::unique_ptr<Announcements>> Announcements::Create(device::Device& device) {
  std::unique_ptr<Announcements> made(new Announcements(device.api()));
  auto channel = verbs::CreateCompChannel(device.api(), device.context());
  if (!channel.ok()) return channel.status();
  made->channel_ = std::move(*channel);
  const int flags = fcntl(made->fd(), F_GETFL);
  if (flags < 0 || fcntl(made->fd(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::ErrnoError(errno, "fcntl(completion channel)", {.layer = "integrity"});
  }
  return made;
}

void Announcements::Drain() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (api_.get_cq_event(channel_.get(), &cq, &context) == 0) api_.ack_cq_events(cq, 1);
}

}  // namespace sluice::integrity

// SPDX-License-Identifier: Apache-2.0
#include "transport/memory/region.h"

#include <utility>

namespace sluice::memory {

absl::StatusOr<Region> Region::Register(const verbs::VerbsApi& api, ibv_pd* pd,
                                        std::span<std::byte> memory, RemoteRights rights) {
  int access = IBV_ACCESS_LOCAL_WRITE;
  if (rights.read) access |= IBV_ACCESS_REMOTE_READ;
  if (rights.write) access |= IBV_ACCESS_REMOTE_WRITE;
  auto mr = verbs::RegisterMemory(api, pd, memory.data(), memory.size(), access);
  if (!mr.ok()) return mr.status();
  Region region;
  region.mr_ = std::move(*mr);
  return region;
}

}  // namespace sluice::memory

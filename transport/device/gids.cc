// SPDX-License-Identifier: Apache-2.0
#include "transport/device/gids.h"

#include <algorithm>
#include <cstring>

namespace sluice::device {
namespace {

constexpr int kMostIndexes = 255;  // of what an address vector can name

bool IsZero(const ibv_gid& gid) {
  return gid.global.subnet_prefix == 0 && gid.global.interface_id == 0;
}

bool IsIpv4Mapped(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

bool Same(const ibv_gid& a, const ibv_gid& b) {
  return std::memcmp(a.raw, b.raw, sizeof(a.raw)) == 0;
}

}  // namespace

GidEntry PickGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length) {
  GidEntry best;
  for (int i = 0; i < std::min(table_length, kMostIndexes); ++i) {
    ibv_gid gid = {};
    if (api.query_gid(context, port, i, &gid) != 0 || IsZero(gid)) continue;
    const bool better = best.index < 0 || (IsIpv4Mapped(gid) && !IsIpv4Mapped(best.gid));
    if (better || Same(gid, best.gid)) best = {.index = i, .gid = gid};
  }
  return best;
}

GidEntry FindGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
                 const ibv_gid& wanted) {
  GidEntry found;
  for (int i = 0; i < std::min(table_length, kMostIndexes); ++i) {
    ibv_gid gid = {};
    if (api.query_gid(context, port, i, &gid) == 0 && Same(gid, wanted)) {
      found = {.index = i, .gid = gid};
    }
  }
  return found;
}

}  // namespace sluice::device

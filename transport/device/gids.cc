// SPDX-License-Identifier: Apache-2.0
#include "transport/device/gids.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice::device {
namespace {

constexpr int kMostIndexes = 255;  // an address vector has eight bits for the index

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

// Higher is better.
int RankOf(const GidEntry& entry) {
  return (entry.roce_v1 ? 0 : 2) + (IsIpv4Mapped(entry.gid) ? 1 : 0);
}

// Returns whether no other entry with the same GID is preferred. Returns false for an untyped entry: a later equal GID is preferred.
bool IsBestOfItsGid(const GidEntry& entry) { return entry.typed && !entry.roce_v1; }

}  // namespace

GidEntry ReadGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int index) {
  ibv_gid_entry entry = {};
  const int error = api.query_gid_ex(context, port, static_cast<uint32_t>(index), &entry);
  if (error == 0 && !IsZero(entry.gid)) {
    return {.index = index,
            .gid = entry.gid,
            .roce_v1 = entry.gid_type == IBV_GID_TYPE_ROCE_V1,
            .infiniband = entry.gid_type == IBV_GID_TYPE_IB,
            .typed = true,
            .interface = entry.ndev_ifindex};
  }
  ibv_gid gid = {};
  if (error != EOPNOTSUPP || api.query_gid(context, port, index, &gid) != 0 || IsZero(gid)) {
    return {};
  }
  return {.index = index, .gid = gid};
}

GidEntry PickGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length) {
  GidEntry best;
  for (int i = 0; i < std::min(table_length, kMostIndexes); ++i) {
    const GidEntry entry = ReadGid(api, context, port, i);
    if (entry.index < 0) continue;
    const bool better = best.index < 0 || RankOf(entry) > RankOf(best);
    const bool later = RankOf(entry) == RankOf(best) && Same(entry.gid, best.gid);
    if (better || later) best = entry;
    if (IsBestOfItsGid(entry) && IsIpv4Mapped(entry.gid)) break;
  }
  return best;
}

GidEntry FindGid(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
                 const ibv_gid& wanted) {
  GidEntry found;
  for (int i = 0; i < std::min(table_length, kMostIndexes); ++i) {
    const GidEntry entry = ReadGid(api, context, port, i);
    if (entry.index < 0 || !Same(entry.gid, wanted)) continue;
    if (found.index < 0 || RankOf(entry) >= RankOf(found)) found = entry;
    if (IsBestOfItsGid(entry)) break;
  }
  return found;
}

}  // namespace sluice::device

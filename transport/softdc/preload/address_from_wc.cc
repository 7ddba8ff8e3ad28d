// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/address_from_wc.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "transport/softdc/loop/gids.h"
#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {
namespace {

constexpr size_t kIpv4Offset = 20;  // in the 40 bytes
constexpr size_t kIpv4Bytes = 20;

struct Header {
  ibv_gid source;
  ibv_gid destination;
  uint32_t flow_label = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

ibv_gid MapIpv4(const uint8_t* address) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(gid.raw + 12, address, 4);
  return gid;
}

// A correct header checksum distinguishes an IPv4 header from the end of a GID.
bool IsIpv4(const uint8_t* ip) {
  constexpr uint8_t kVersion4FiveWords = 0x45;
  if (ip[0] != kVersion4FiveWords) return false;
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Bytes; i += 2) sum += uint32_t{ip[i]} << 8 | ip[i + 1];
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

bool Parse(const ibv_grh& grh, Header* header) {
  uint8_t bytes[sizeof(ibv_grh)];
  std::memcpy(bytes, &grh, sizeof(bytes));
  const uint8_t* ip = bytes + kIpv4Offset;
  if (IsIpv4(ip)) {
    *header = {.source = MapIpv4(ip + 12),
               .destination = MapIpv4(ip + 16),
               .traffic_class = ip[1],
               .hop_limit = ip[8]};
    return true;
  }
  const uint32_t first = ntohl(grh.version_tclass_flow);
  constexpr uint32_t kVersion = 6;
  if (first >> 28 != kVersion) return false;
  *header = {.source = grh.sgid,
             .destination = grh.dgid,
             .flow_label = first & 0xfffff,
             .traffic_class = static_cast<uint8_t>(first >> 20),
             .hop_limit = grh.hop_limit};
  return true;
}

// Returns the index of the GID in the port's table, or -1. Tables have no empty entries before the last.
int IndexInTable(ibv_context* context, uint8_t port_num, const ibv_gid& gid) {
  static constexpr ibv_gid kNone{};
  ibv_gid entry;
  for (int index = 0; Verbs().query_gid(context, port_num, index, &entry) == 0; ++index) {
    if (SameGid(entry, kNone)) break;
    if (SameGid(entry, gid)) return index;
  }
  return -1;
}

}  // namespace

int InitAhFromWc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                 ibv_ah_attr* attr) {
  *attr = {};
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port_num;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  Header header;
  int index = -1;
  if (Parse(*grh, &header)) index = IndexInTable(context, port_num, header.destination);
  if (index < 0) {
    errno = EINVAL;
    return -1;
  }
  attr->is_global = 1;
  attr->grh = {.dgid = header.source,
               .flow_label = header.flow_label,
               .sgid_index = static_cast<uint8_t>(index),
               .hop_limit = header.hop_limit,
               .traffic_class = header.traffic_class};
  return 0;
}

ibv_ah* CreateAhFromWc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num) {
  ibv_ah_attr attr;
  if (InitAhFromWc(pd->context, port_num, wc, grh, &attr) != 0) return nullptr;
  return Verbs().create_ah(pd, &attr);
}

}  // namespace sluice::softdc::preload

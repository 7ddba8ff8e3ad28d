// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/query.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/cm/qp_attributes.h"

namespace sluice::softdc::ucma {
namespace {

constexpr uint16_t kDefaultPkey = 0xffff;
constexpr uint8_t kExactly = 2;  // selector of an SA record: the value itself
constexpr uint8_t kRate = IBV_RATE_100_GBPS;
constexpr uint32_t kNoDeviceIndex = ~0u;  // librdmacm then uses only the GUID

void PutDevice(const cm::IdInfo& info, abi::rdma_ucm_query_addr_resp* response) {
  if (!info.has_device) return;
  response->node_guid = info.node_guid;
  response->port_num = cm::kPortNum;
  response->pkey = htons(kDefaultPkey);
  response->ibdev_index = kNoDeviceIndex;
}

sockaddr_ib GidAddress(const cm::IdInfo& info, const Gid& gid, const sockaddr_storage& address) {
  sockaddr_ib made{};
  made.sib_family = AF_IB;
  if (info.has_device) made.sib_pkey = htons(kDefaultPkey);
  std::memcpy(&made.sib_addr, gid.raw, sizeof(gid.raw));
  const uint16_t port = ntohs(cm::PortOf(reinterpret_cast<const sockaddr*>(&address)));
  made.sib_sid = htobe64((static_cast<uint64_t>(info.ps) << 16) + port);
  return made;
}

}  // namespace

size_t AddressBytes(const void* address, size_t room) {
  sa_family_t family = 0;
  std::memcpy(&family, address, sizeof(family));
  size_t bytes = 0;
  if (family == AF_INET) bytes = sizeof(sockaddr_in);
  if (family == AF_INET6) bytes = sizeof(sockaddr_in6);
  if (family == AF_IB) bytes = sizeof(sockaddr_ib);
  return bytes <= room ? bytes : 0;
}

abi::rdma_ucm_query_route_resp RouteOf(const cm::IdInfo& info) {
  abi::rdma_ucm_query_route_resp response{};
  std::memcpy(&response.src_addr, &info.source,
              AddressBytes(&info.source, sizeof(response.src_addr)));
  std::memcpy(&response.dst_addr, &info.destination,
              AddressBytes(&info.destination, sizeof(response.dst_addr)));
  if (!info.has_device) return response;
  response.node_guid = info.node_guid;
  response.port_num = cm::kPortNum;
  response.ibdev_index = kNoDeviceIndex;
  ib_user_path_rec& path = response.ib_route[0];
  std::memcpy(path.dgid, info.peer_gid.raw, sizeof(path.dgid));
  std::memcpy(path.sgid, info.local_gid.raw, sizeof(path.sgid));
  path.pkey = htons(kDefaultPkey);
  if (!info.has_path) return response;
  response.num_paths = 1;
  path.hop_limit = cm::kHopLimit;
  path.traffic_class = info.traffic_class;
  path.reversible = 1;
  path.mtu_selector = kExactly;
  path.mtu = info.path_mtu;
  path.rate_selector = kExactly;
  path.rate = kRate;
  path.packet_life_time_selector = kExactly;
  path.packet_life_time = info.packet_lifetime;
  return response;
}

abi::rdma_ucm_query_addr_resp AddressesOf(const cm::IdInfo& info) {
  abi::rdma_ucm_query_addr_resp response{};
  response.src_size = static_cast<uint16_t>(AddressBytes(&info.source, sizeof(response.src_addr)));
  std::memcpy(&response.src_addr, &info.source, response.src_size);
  response.dst_size =
      static_cast<uint16_t>(AddressBytes(&info.destination, sizeof(response.dst_addr)));
  std::memcpy(&response.dst_addr, &info.destination, response.dst_size);
  PutDevice(info, &response);
  return response;
}

abi::rdma_ucm_query_addr_resp GidsOf(const cm::IdInfo& info) {
  abi::rdma_ucm_query_addr_resp response{};
  const sockaddr_ib source = GidAddress(info, info.local_gid, info.source);
  const sockaddr_ib destination = GidAddress(info, info.peer_gid, info.destination);
  response.src_size = sizeof(source);
  std::memcpy(&response.src_addr, &source, sizeof(source));
  response.dst_size = sizeof(destination);
  std::memcpy(&response.dst_addr, &destination, sizeof(destination));
  PutDevice(info, &response);
  return response;
}

ib_path_rec_data PathOf(const cm::IdInfo& info) {
  ibv_path_record record{};
  record.dgid = info.peer_gid;
  record.sgid = info.local_gid;
  record.flowlabel_hoplimit = htonl(cm::kHopLimit);
  record.tclass = info.traffic_class;
  record.reversible_numpath = 0x80;
  record.pkey = htons(kDefaultPkey);
  record.mtu = static_cast<uint8_t>((kExactly << 6) | info.path_mtu);
  record.rate = (kExactly << 6) | kRate;
  record.packetlifetime = static_cast<uint8_t>((kExactly << 6) | info.packet_lifetime);
  ib_path_rec_data data{};
  data.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  static_assert(sizeof(record) == sizeof(data.path_rec));
  std::memcpy(data.path_rec, &record, sizeof(record));
  return data;
}

ib_uverbs_ah_attr ToKernel(const ibv_ah_attr& from) {
  ib_uverbs_ah_attr to{};
  std::memcpy(to.grh.dgid, from.grh.dgid.raw, sizeof(to.grh.dgid));
  to.grh.flow_label = from.grh.flow_label;
  to.grh.sgid_index = from.grh.sgid_index;
  to.grh.hop_limit = from.grh.hop_limit;
  to.grh.traffic_class = from.grh.traffic_class;
  to.dlid = from.dlid;
  to.sl = from.sl;
  to.src_path_bits = from.src_path_bits;
  to.static_rate = from.static_rate;
  to.is_global = from.is_global;
  to.port_num = from.port_num;
  return to;
}

ib_uverbs_qp_attr ToKernel(const ibv_qp_attr& from, int mask) {
  ib_uverbs_qp_attr to{};
  to.qp_attr_mask = static_cast<uint32_t>(mask);
  to.qp_state = from.qp_state;
  to.cur_qp_state = from.cur_qp_state;
  to.path_mtu = from.path_mtu;
  to.path_mig_state = from.path_mig_state;
  to.qkey = from.qkey;
  to.rq_psn = from.rq_psn;
  to.sq_psn = from.sq_psn;
  to.dest_qp_num = from.dest_qp_num;
  to.qp_access_flags = from.qp_access_flags;
  to.ah_attr = ToKernel(from.ah_attr);
  to.pkey_index = from.pkey_index;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.port_num = from.port_num;
  to.timeout = from.timeout;
  to.retry_cnt = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  return to;
}

}  // namespace sluice::softdc::ucma

// SPDX-License-Identifier: Apache-2.0
#include "transport/path/address_handles.h"

#include <cassert>
#include <cerrno>
#include <utility>

#include "transport/base/error.h"

namespace sluice::path {
namespace {

void Append(std::string* key, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) key->push_back(static_cast<char>(value >> shift));
}

// Field by field: the struct has padding.
std::string Key(const ibv_ah_attr& attr, uint32_t template_qpn, uint64_t generation) {
  std::string key(reinterpret_cast<const char*>(attr.grh.dgid.raw), sizeof(attr.grh.dgid.raw));
  Append(&key, attr.grh.flow_label);
  Append(&key, (uint64_t{attr.grh.sgid_index} << 16) | (uint64_t{attr.grh.hop_limit} << 8) |
                   attr.grh.traffic_class);
  Append(&key, (uint64_t{attr.dlid} << 32) | (uint64_t{attr.sl} << 24) |
                   (uint64_t{attr.src_path_bits} << 16) | (uint64_t{attr.is_global} << 8) |
                   attr.port_num);
  Append(&key, (uint64_t{template_qpn} << 8) | attr.static_rate);
  Append(&key, generation);
  return key;
}

}  // namespace

absl::StatusOr<Route> AddressHandles::Acquire(const ibv_ah_attr& attr, uint32_t template_qpn) {
  const std::string key = Key(attr, template_qpn, generation_);
  auto found = by_destination_.find(key);
  const bool first = found == by_destination_.end();
  if (first) {
    ibv_ah_attr copy = attr;
    errno = 0;
    ibv_ah* raw = api_.create_ah(pd_, &copy);
    if (raw == nullptr) {
      return base::ErrnoError(errno != 0 ? errno : EINVAL, "ibv_create_ah",
                              {.layer = "path",
                               .operation = "connect",
                               .cause = "the peer's address can't be reached from this port",
                               .remedy = "check the route and the neighbour entry to the peer"});
    }
    const bool mapped = map_ && attr.is_global && api_.dv_map_ah_to_qp(raw, template_qpn) == 0;
    (mapped ? mapped_ : unmapped_).fetch_add(1, std::memory_order_relaxed);
    found = by_destination_.emplace(key, Entry{verbs::Ah(&api_, raw), mapped, 0}).first;
    destination_of_[raw] = key;
  }
  ++found->second.users;
  return Route{
      .handle = found->second.handle.get(), .mapped = found->second.mapped, .first = first};
}

void AddressHandles::Release(ibv_ah* handle) {
  const auto destination = destination_of_.find(handle);
  assert(destination != destination_of_.end());
  const auto found = by_destination_.find(destination->second);
  if (--found->second.users != 0) return;
  by_destination_.erase(found);
  destination_of_.erase(destination);
}

}  // namespace sluice::path

// SPDX-License-Identifier: Apache-2.0
#include "transport/path/address_handles.h"

#include <cassert>
#include <cerrno>
#include <iterator>
#include <utility>

#include "transport/base/error.h"

namespace sluice::path {
namespace {

void Append(std::string* key, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) key->push_back(static_cast<char>(value >> shift));
}

// Field by field: the struct has padding.
std::string Key(const ibv_ah_attr& attr, uint32_t template_qpn) {
  std::string key(reinterpret_cast<const char*>(attr.grh.dgid.raw), sizeof(attr.grh.dgid.raw));
  Append(&key, attr.grh.flow_label);
  Append(&key, (uint64_t{attr.grh.sgid_index} << 16) | (uint64_t{attr.grh.hop_limit} << 8) |
                   attr.grh.traffic_class);
  Append(&key, (uint64_t{attr.dlid} << 32) | (uint64_t{attr.sl} << 24) |
                   (uint64_t{attr.src_path_bits} << 16) | (uint64_t{attr.is_global} << 8) |
                   attr.port_num);
  Append(&key, (uint64_t{template_qpn} << 8) | attr.static_rate);
  return key;
}

// Returns a flow label of 20 bits. Never 0, because 0 leaves the choice to the provider. On RoCE v2, switches see the label as the UDP
// source port, besides the address of this host.
uint32_t FlowLabel(const ibv_gid& to, uint32_t turn) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const uint8_t byte : to.raw) hash = (hash ^ byte) * 16777619;
  if (turn != 0) hash = (hash ^ turn) * 16777619;
  const uint32_t label = (hash >> 20 ^ hash) & 0xfffff;
  return label != 0 ? label : 1;
}

// On RoCE (without LIDs), replaces values that RDMA_CM sets for each connection:
// - a static rate: kernels before 6.4 report 40 Gb/s for any faster port, and libmlx5 would limit the handle to that;
// - a flow label, which the kernel computes from the ports of the connection, so that no two peers would share a handle.
ibv_ah_attr Shared(ibv_ah_attr attr, uint32_t turn) {
  if (attr.is_global && attr.dlid == 0) {
    attr.static_rate = IBV_RATE_MAX;
    attr.grh.flow_label = FlowLabel(attr.grh.dgid, turn);
  }
  return attr;
}

}  // namespace

absl::StatusOr<Route> AddressHandles::Acquire(const ibv_ah_attr& from_cm, uint32_t template_qpn) {
  Evict();
  const ibv_ah_attr attr = LeastUsed(from_cm, template_qpn);
  std::string destination = Key(attr, template_qpn);
  const auto found = by_destination_.find(destination);
  const bool first = found == by_destination_.end();
  Entry* entry = nullptr;
  if (first) {
    auto made = Make(attr, template_qpn, std::move(destination));
    if (!made.ok()) return made.status();
    entry = *made;
  } else {
    entry = found->second;
    Add(kReused);
  }
  if (entry->users++ == 0) {
    if (!first) {
      idle_.erase(entry->place);
      Add(kIdle, -1);
    }
    Add(kInUse);
  }
  return Route{.handle = entry->handle.get(),
               .mapped = entry->mapped,
               .first = first,
               .map_error = entry->map_error};
}

ibv_ah_attr AddressHandles::LeastUsed(const ibv_ah_attr& from_cm, uint32_t template_qpn) {
  assert(path_.flow_labels != 0);
  ibv_ah_attr least_used{};
  uint32_t fewest = 0;
  const uint32_t first = acquired_++;
  for (uint32_t i = 0; i < path_.flow_labels; ++i) {
    ibv_ah_attr attr = Shared(from_cm, (first + i) % path_.flow_labels);
    verbs::SetClass(path_, &attr);
    const auto found = by_destination_.find(Key(attr, template_qpn));
    const uint32_t users = found != by_destination_.end() ? found->second->users : 0;
    if (i == 0 || users < fewest) {
      least_used = attr;
      fewest = users;
    }
    if (users == 0) break;
  }
  return least_used;
}

absl::StatusOr<AddressHandles::Entry*> AddressHandles::Make(const ibv_ah_attr& attr,
                                                            uint32_t template_qpn,
                                                            std::string destination) {
  ibv_ah_attr copy = attr;
  errno = 0;
  ibv_ah* raw = api_.create_ah(pd_, &copy);
  if (raw == nullptr) {
    const int error_number = errno != 0 ? errno : EINVAL;
    Add(kFailed);
    return base::ErrnoError(error_number, "ibv_create_ah",
                            {.layer = "path",
                             .operation = "connect",
                             .cause = "the peer's address can't be reached from this port",
                             .remedy = "check the route and the neighbour entry to the peer"});
  }
  auto entry = std::make_unique<Entry>();
  entry->destination = std::move(destination);
  entry->template_qpn = template_qpn;
  entry->handle = verbs::Ah(&api_, raw);
  if (map_ && attr.is_global) {
    entry->map_error = api_.dv_map_ah_to_qp(raw, template_qpn);
    entry->mapped = entry->map_error == 0;
    if (!entry->mapped) {
      Add(kMapFailed);
      counts_[kMapError] = static_cast<uint64_t>(entry->map_error);
    }
  }
  Add(entry->mapped ? kMapped : kUnmapped);
  Add(kMade);
  Entry* made = entry.get();
  by_destination_[made->destination] = made;
  entries_.emplace(raw, std::move(entry));
  return made;
}

void AddressHandles::Release(ibv_ah* handle, bool suspect) {
  const auto found = entries_.find(handle);
  assert(found != entries_.end() && found->second->users != 0);
  Entry* entry = found->second.get();
  if (suspect) Retire(entry);
  if (--entry->users != 0) return;
  if (entry->current) {
    entry->idle_since_ns = clock_.NowNs();
    entry->place = idle_.insert(idle_.end(), entry);
    Add(kIdle);
  } else {
    Free(entry);
  }
  Add(kInUse, -1);  // last: a reader that sees this count also sees the end of the handle
  Evict();
}

void AddressHandles::Retire(Entry* entry) {
  if (!entry->current) return;
  entry->current = false;
  by_destination_.erase(entry->destination);
}

void AddressHandles::Free(Entry* entry) {
  Retire(entry);
  entries_.erase(entry->handle.get());
}

void AddressHandles::Renew() {
  by_destination_.clear();
  for (auto& [handle, entry] : entries_) entry->current = false;
  while (!idle_.empty()) EvictOne(idle_.begin());
}

void AddressHandles::Forget(uint32_t template_qpn) {
  for (auto place = idle_.begin(); place != idle_.end();) {
    const auto next = std::next(place);
    if ((*place)->template_qpn == template_qpn) EvictOne(place);
    place = next;
  }
}

// Frees only handles without users.
void AddressHandles::Evict() {
  const int64_t oldest_ns = clock_.NowNs() - limits_.max_idle_ns;
  while (!idle_.empty() &&
         (idle_.size() > limits_.max_idle || idle_.front()->idle_since_ns < oldest_ns)) {
    EvictOne(idle_.begin());
  }
}

void AddressHandles::EvictOne(std::list<Entry*>::iterator place) {
  Entry* entry = *place;
  idle_.erase(place);
  Add(kIdle, -1);
  Add(kEvicted);
  Free(entry);
}

HandleCounts AddressHandles::counts() const {
  const auto of = [this](Count which) { return counts_[which].load(); };
  return {.in_use = static_cast<uint32_t>(of(kInUse)),
          .idle = static_cast<uint32_t>(of(kIdle)),
          .made = of(kMade),
          .reused = of(kReused),
          .evicted = of(kEvicted),
          .mapped = of(kMapped),
          .unmapped = of(kUnmapped),
          .map_failures = of(kMapFailed),
          .last_map_error = static_cast<int>(of(kMapError)),
          .make_failures = of(kFailed)};
}

}  // namespace sluice::path

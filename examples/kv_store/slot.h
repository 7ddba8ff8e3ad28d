// SPDX-License-Identifier: Apache-2.0
//
// Slot: one entry of the table as it lies in the server's memory: 512 bytes, and a CRC32C of four behind them.
//
// The CRC is what makes reading without the server's CPU safe: a slot that is read while the server writes it does not match
// its signature, the transfer says so, and the reader reads again.
#ifndef SLUICE_EXAMPLES_KV_STORE_SLOT_H_
#define SLUICE_EXAMPLES_KV_STORE_SLOT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "transport/integrity/protection.h"

namespace sluice::examples::kv_store {

inline constexpr uint32_t kSlotBytes = 512;
inline constexpr uint32_t kStoredBytes = kSlotBytes + 4;
inline constexpr uint32_t kProbes = 8;  // slots in which a key may be, from its own on

inline integrity::Protection SlotProtection() {
  return {.memory = integrity::Guard::kCrc32c,
          .wire = integrity::Guard::kCrc32c,
          .block_bytes = kSlotBytes};
}

struct Slot {
  static constexpr size_t kMaxBytes = kSlotBytes - 4;  // key and value

  uint16_t key_bytes = 0;  // 0: it is free
  uint16_t value_bytes = 0;
  char bytes[kMaxBytes] = {};

  std::string_view key() const { return {bytes, key_bytes}; }
  std::string_view value() const { return {bytes + key_bytes, value_bytes}; }
  void Set(std::string_view key, std::string_view value) {
    key_bytes = static_cast<uint16_t>(key.size());
    value_bytes = static_cast<uint16_t>(value.size());
    std::memcpy(bytes, key.data(), key.size());
    std::memcpy(bytes + key.size(), value.data(), value.size());
  }
};
static_assert(sizeof(Slot) == kSlotBytes);

// FNV-1a: the same in all processes.
inline uint64_t HashOf(std::string_view key) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace sluice::examples::kv_store

#endif  // SLUICE_EXAMPLES_KV_STORE_SLOT_H_

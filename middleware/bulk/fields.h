// SPDX-License-Identifier: Apache-2.0
//
// Fields of the bytes that ports exchange: little-endian, at fixed offsets. The caller checks the length. Private to middleware/bulk.
//
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_BULK_FIELDS_H_
#define SLUICE_MIDDLEWARE_BULK_FIELDS_H_

#include <bit>
#include <cstddef>
#include <cstring>

namespace sluice::bulk {

static_assert(std::endian::native == std::endian::little);

template <typename T>
T Get(const void* bytes, size_t at) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(bytes) + at, sizeof(value));
  return value;
}

template <typename T>
void Put(void* bytes, size_t at, T value) {
  std::memcpy(static_cast<std::byte*>(bytes) + at, &value, sizeof(value));
}

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_FIELDS_H_

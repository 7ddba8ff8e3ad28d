// SPDX-License-Identifier: Apache-2.0
//
// The mappings of this process, as the kernel lists them. Slow (text of /proc/self): for registration only.
//
// Threads       Any. The result is as old as the call.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_ADDRESS_MAP_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_ADDRESS_MAP_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace sluice::softdc::shm {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  char access[5] = {};  // as in /proc/self/maps: "rw-p"
  uint64_t file_offset = 0;
  dev_t device = 0;
  ino_t inode = 0;  // 0: no file
};

// Calls visit for each mapping, in ascending order, until it says false.
// The kernel writes them all down each time, so a process of many mappings should do it seldom.
void ForEachMapping(const std::function<bool(const Mapping&)>& visit);

// How often this process has called ForEachMapping, also from within here.
uint64_t MappingListsRead();

// Whether the range may be exchanged for pages of a file without anybody noticing: all of it private,
// anonymous, readable and writable, no thread's stack that grows by itself, and nothing special was
// asked of the kernel for it (locked, huge, left out of or wiped in children, watched by somebody).
bool IsPlainPrivate(uint64_t begin, uint64_t end);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_ADDRESS_MAP_H_

// SPDX-License-Identifier: Apache-2.0
//
// Lists the memory mappings of this process. Slow, because it parses text of /proc/self: for memory
// registration only.
//
// Threads       Any. The result can be out of date when the call returns.
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

// Calls visit for each mapping, in ascending order, until visit returns false. The kernel writes the whole
// list each time. A process with many mappings should call this rarely.
void ForEachMapping(const std::function<bool(const Mapping&)>& visit);

// Returns the number of times that this process called ForEachMapping, calls by this room included.
uint64_t MappingListsRead();

// Returns whether pages of a file can replace the pages of the range without a visible change for the
// program. True only for private, anonymous, readable and writable memory that is not a stack that grows by
// itself. False if the memory has a special setting in the kernel, for example locked, huge (hugetlb),
// excluded from or wiped in child processes, or watched through userfaultfd.
bool IsPlainPrivate(uint64_t begin, uint64_t end);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_ADDRESS_MAP_H_

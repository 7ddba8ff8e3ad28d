// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/address_map.h"

#include <sys/sysmacros.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace sluice::softdc::shm {
namespace {

std::atomic<uint64_t> g_lists_read{0};

bool ParseMapping(const char* line, Mapping* m) {
  unsigned major_number = 0, minor_number = 0;
  uint64_t inode = 0;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &m->begin,
                  &m->end, m->access, &m->file_offset, &major_number, &minor_number, &inode) != 7) {
    return false;
  }
  m->device = makedev(major_number, minor_number);
  m->inode = inode;
  return true;
}

// Calls visit(line) for each line until visit returns false.
template <typename Visit>
void ForEachLine(const char* path, Visit visit) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path, "re"), &fclose);
  if (file == nullptr) return;
  char* line = nullptr;
  size_t capacity = 0;
  while (getline(&line, &capacity, file.get()) > 0 && visit(line)) {
  }
  free(line);
}

// Returns whether all two-letter flags of a mapping (man proc_pid_smaps) are permitted: flags of plain
// memory, and flags that do not matter for an exchange of pages.
bool OnlyPlainFlags(const char* flags) {
  static constexpr std::string_view kPlain = " rd wr mr mw me ac nr hg nh sd mg ";
  char word[3];
  int length = 0;
  for (; std::sscanf(flags, " %2s%n", word, &length) == 1; flags += length) {
    const char spaced[] = {' ', word[0], word[1], ' ', 0};
    if (kPlain.find(spaced) == std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

uint64_t MappingListsRead() { return g_lists_read.load(std::memory_order_relaxed); }

void ForEachMapping(const std::function<bool(const Mapping&)>& visit) {
  g_lists_read.fetch_add(1, std::memory_order_relaxed);
  ForEachLine("/proc/self/maps", [&](const char* line) {
    Mapping m;
    return !ParseMapping(line, &m) || visit(m);
  });
}

bool IsPlainPrivate(uint64_t begin, uint64_t end) {
  // Reads the cheap list first: for smaps, the kernel counts every page of the process.
  uint64_t next = begin;
  ForEachMapping([&](const Mapping& m) {
    if (m.end <= next) return true;
    if (m.begin > next || m.inode != 0 || std::strcmp(m.access, "rw-p") != 0) return false;
    next = m.end;
    return next < end;
  });
  if (next < end) return false;
  bool inside = false, plain = true, told = false;
  ForEachLine("/proc/self/smaps", [&](const char* line) {
    Mapping m;
    if (ParseMapping(line, &m)) {
      inside = m.begin < end && m.end > begin;
      return m.begin < end;
    }
    static constexpr char kFlags[] = "VmFlags:";
    if (inside && std::strncmp(line, kFlags, sizeof(kFlags) - 1) == 0) {
      plain = OnlyPlainFlags(line + sizeof(kFlags) - 1);
      told = true;
    }
    return plain;
  });
  return plain && told;
}

}  // namespace sluice::softdc::shm

// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/number_space.h"

#include <pthread.h>

#include <atomic>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {
namespace {
constexpr int kBacklog = 1024;  // contexts that connect at the same time; further contexts retry

std::atomic<uint64_t> g_names_tried{0};

struct OwnBlocks {
  std::mutex mutex;
  std::map<std::string, std::set<uint32_t>> by_domain;  // mutex

  static OwnBlocks& Get() {
    // Outlives static destructors, like the Loop.
    static OwnBlocks* const blocks = [] {
      auto* made = new OwnBlocks();
      pthread_atfork([] { Get().mutex.lock(); }, [] { Get().mutex.unlock(); },
                     [] {
                       Get().by_domain.clear();
                       Get().mutex.unlock();
                     });
      return made;
    }();
    return *blocks;
  }
  bool Hold(const std::string& domain, uint32_t index) {
    std::lock_guard lock(mutex);
    const auto held = by_domain.find(domain);
    return held != by_domain.end() && held->second.contains(index);
  }
};

}  // namespace

uint64_t BlockNamesTried() { return g_names_tried.load(std::memory_order_relaxed); }

OwnBlock::OwnBlock(std::string domain, uint32_t index) : domain_(std::move(domain)), index_(index) {
  OwnBlocks& blocks = OwnBlocks::Get();
  std::lock_guard lock(blocks.mutex);
  blocks.by_domain[domain_].insert(index_);
}

OwnBlock::~OwnBlock() {
  OwnBlocks& blocks = OwnBlocks::Get();
  std::lock_guard lock(blocks.mutex);
  const auto held = blocks.by_domain.find(domain_);
  if (held == blocks.by_domain.end()) return;  // in a forked child
  held->second.erase(index_);
  if (held->second.empty()) blocks.by_domain.erase(held);
}

std::string BlockSocketName(uint32_t block) { return AbstractName("qpn", absl::StrCat(block)); }

uint32_t BlockOfTime(int64_t now_ns) {
  constexpr int64_t kBlockNs = 20'000'000;
  return kFirstBlock + static_cast<uint32_t>(now_ns / kBlockNs % (kBlocks - kFirstBlock));
}

NumberSpace::NumberSpace(BlockHook on_block, BlockHook off_block, uint32_t first_block)
    : on_block_(std::move(on_block)), off_block_(std::move(off_block)), next_block_(first_block) {}

NumberSpace::~NumberSpace() {
  std::lock_guard lock(mutex_);
  for (auto& block : blocks_) off_block_(block->socket.get());
}

bool NumberSpace::TakeBlock() {
  const std::string domain = FabricDomain();
  for (uint32_t i = 0; i < kBlocks - kFirstBlock; ++i) {
    const uint32_t index = next_block_;
    next_block_ = index + 1 == kBlocks ? kFirstBlock : index + 1;
    if (OwnBlocks::Get().Hold(domain, index)) continue;
    g_names_tried.fetch_add(1, std::memory_order_relaxed);
    UniqueFd socket = ListenAbstract(BlockSocketName(index), kBacklog);
    if (!socket) continue;
    SOFTDC_KILL_POINT(kBlockTaken);
    auto block = std::make_unique<Block>();
    block->index = index;
    block->own.emplace(domain, index);
    block->socket = std::move(socket);
    on_block_(block->socket.get());
    blocks_.push_back(std::move(block));
    return true;
  }
  return false;
}

uint32_t NumberSpace::Allocate() {
  std::lock_guard lock(mutex_);
  if (blocks_.empty() || blocks_.back()->next == kNumbersPerBlock) {
    if (!TakeBlock()) return kNoQpNumber;
  }
  Block& block = *blocks_.back();
  const uint32_t in_block = block.next++;
  block.live.set(in_block);
  return block.index * kNumbersPerBlock + in_block;
}

bool NumberSpace::Free(uint32_t number) {
  std::lock_guard lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end(); ++it) {
    Block& block = **it;
    if (block.index != number / kNumbersPerBlock) continue;
    const uint32_t in_block = number % kNumbersPerBlock;
    if (!block.live.test(in_block)) return false;
    block.live.reset(in_block);
    if (block.next == kNumbersPerBlock && block.live.none()) {
      off_block_(block.socket.get());
      blocks_.erase(it);
    }
    return true;
  }
  return false;
}

}  // namespace sluice::softdc

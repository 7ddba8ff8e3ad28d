// SPDX-License-Identifier: Apache-2.0
//
// Allocates the QP numbers of one context. The 24-bit number space of the device is divided into blocks of
// 256. A context owns a block while it holds the block's abstract socket name, so numbers are unique over all
// processes of the host. When a process dies, its numbers are free at once (firmware also reissues them),
// unless contexts start at BlockOfTime. Within a block, a context hands out each number only once.
// mlx5dv_reserved_qpn_alloc(3) does not promise more, and CM's timewait needs it.
//
// Threads       Any.
//
// Other contexts send their requests for the numbers of a block to the listening socket of the block.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_NUMBER_SPACE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_NUMBER_SPACE_H_

#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc {

inline constexpr uint32_t kNumbersPerBlock = 256;
inline constexpr uint32_t kFirstBlock = 1;  // 0 to 255 hold the well-known numbers
inline constexpr uint32_t kBlocks = (1u << 24) / kNumbersPerBlock;
inline constexpr uint32_t kNoQpNumber = 0;

std::string BlockSocketName(uint32_t block);

// Returns the first block for a context that must not soon reuse the numbers of a dead context. The block
// advances with the time and starts over after about twenty minutes. This holds while no process uses up
// blocks faster than one block per 20 ms.
uint32_t BlockOfTime(int64_t now_ns);

// Returns the number of block names that this process has tried to take.
uint64_t BlockNamesTried();

// Records that this process holds a block. Other contexts of the process skip the block without a call to the
// kernel, so that a thousand contexts do not try each other's names. A forked child starts with no blocks.
class OwnBlock {
 public:
  OwnBlock(std::string domain, uint32_t index);
  ~OwnBlock();
  OwnBlock(const OwnBlock&) = delete;
  OwnBlock& operator=(const OwnBlock&) = delete;

 private:
  const std::string domain_;
  const uint32_t index_;
};

class NumberSpace {
 public:
  // `on_block` starts serving the block's listening socket; `off_block` stops it. Both are called under the
  // lock.
  using BlockHook = std::function<void(int listening_fd)>;
  NumberSpace(BlockHook on_block, BlockHook off_block, uint32_t first_block = kFirstBlock);
  ~NumberSpace();

  // Returns kNoQpNumber if no number is free (ENOMEM to the user).
  uint32_t Allocate();
  // Returns false if this context does not own the number, or the number is already free.
  bool Free(uint32_t number);

 private:
  struct Block {
    uint32_t index = 0;
    uint32_t next = 0;  // first number never handed out
    std::bitset<kNumbersPerBlock> live;
    std::optional<OwnBlock> own;  // outlives the socket, which holds the name
    UniqueFd socket;
  };
  bool TakeBlock();

  const BlockHook on_block_;
  const BlockHook off_block_;
  std::mutex mutex_;
  uint32_t next_block_;  // mutex_; only advances, so a released block is reused last
  std::vector<std::unique_ptr<Block>> blocks_;  // mutex_; Allocate uses the last block
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_NUMBER_SPACE_H_

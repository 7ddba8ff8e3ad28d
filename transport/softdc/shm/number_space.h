// SPDX-License-Identifier: Apache-2.0
//
// QP numbers of one context. The 24-bit number space of the device is cut in blocks of 256; a
// context owns a block while it holds its abstract socket name, so numbers are unique over all
// processes of the host and a dead process's numbers are free at once (firmware re-issues them as
// well), unless BlockOfTime keeps newcomers away from them. Within its blocks a context goes forward only: a number that was handed out never comes
// again from the same block (mlx5dv_reserved_qpn_alloc(3) promises no more, and CM's timewait needs
// it).
//
// Thread-safe. The listening socket of a block is also where other contexts ask for the numbers in
// it.
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

// Where a context begins that is not to be given a dead one's numbers soon: further on with the time,
// and round again after some twenty minutes. Holds as long as nobody takes a block's numbers faster than
// time goes on by a block, in 20 ms.
uint32_t BlockOfTime(int64_t now_ns);

// How often this process has tried to take a block's name.
uint64_t BlockNamesTried();

// That this process holds a block: others of its contexts pass the block over without asking the kernel, so
// a thousand contexts do not try each other's names. A forked child begins with none.
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
  // `on_block` starts serving the block's listening socket; `off_block` stops it. Called under the
  // lock.
  using BlockHook = std::function<void(int listening_fd)>;
  NumberSpace(BlockHook on_block, BlockHook off_block, uint32_t first_block = kFirstBlock);
  ~NumberSpace();

  // kNoQpNumber when the space is used up (ENOMEM to the user).
  uint32_t Allocate();
  // False: not a number of ours, or freed already.
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
  uint32_t next_block_;  // mutex_; forward, so that a returned block is the last to come again
  std::vector<std::unique_ptr<Block>> blocks_;  // mutex_; the last one is being handed out
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_NUMBER_SPACE_H_

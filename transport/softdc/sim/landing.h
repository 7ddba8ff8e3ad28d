// SPDX-License-Identifier: Apache-2.0
//
// Landings: makes the bytes of a message visible in memory. If the order is guaranteed, or the message has
// one block, all bytes land at once. Otherwise the blocks land in random order and with gaps. If blocks are
// guaranteed, a block has 128 aligned bytes of the target, or a multiple of that in long messages. Otherwise
// it has a power of two of bytes, at least 8, counted from the beginning.
//
// A block lands only if its target memory is still valid: the process lives and the key is valid.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_LANDING_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_LANDING_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/softdc/config/dials.h"
#include "transport/softdc/sim/message.h"
#include "transport/softdc/sim/world.h"

namespace sluice::softdc::sim {

class Landings {
 public:
  // Maximum number of blocks per message. Longer messages have longer blocks.
  static constexpr uint32_t kMaxBlocks = 256;

  explicit Landings(World& world) : world_(world) {}

  // Facts that are checked before each block.
  struct Ground {
    SimPort* port = nullptr;
    uint32_t node = 0;
    uint32_t rkey = 0;    // 0: a receive buffer
    uint32_t srq_id = 0;  // of a receive buffer
  };
  // Starts to copy message.data() into `places`. Returns the time from which on all bytes are in place.
  int64_t Land(Message& message, const Ground& ground, InOrder promise,
               std::span<const Place> places);

 private:
  struct Block {
    std::byte* to;
    uint32_t offset;
    uint32_t length_bytes;
    int64_t when_ns;
  };
  // A copy of the bytes that have not landed. The message itself may be released before they land.
  struct Landing {
    Ground ground;
    uint32_t from_node = 0;
    uint64_t sequence = 0;
    std::vector<std::byte> bytes;
    std::vector<Block> blocks;
    size_t next = 0;
  };
  static void FireBlock(void* self, uint64_t landing);
  void OnBlock(Landing* landing);
  bool Stands(const Ground& ground) const;
  uint32_t BlockBytes(InOrder promise, uint32_t length_bytes);
  static void Cut(Landing* landing, InOrder promise, std::span<const Place> places,
                  uint32_t block_bytes);

  World& world_;
  std::vector<std::unique_ptr<Landing>> all_;
  std::vector<Landing*> free_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_LANDING_H_

// SPDX-License-Identifier: Apache-2.0
//
// Landings: how the bytes of a message become visible in memory. With a promised order, or for a message of one block: all at once. Otherwise
// block by block, in random order and with gaps. A block has 128 aligned bytes of the target (or several times that, in long messages) where
// this is promised, otherwise a power of two from 8 bytes on, counted from the beginning.
//
// A block lands only if the memory is unchanged: the process lives and the key is valid.
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
  static constexpr uint32_t kMaxBlocks = 256;  // of a message; longer ones have longer blocks

  explicit Landings(World& world) : world_(world) {}

  // What is asked before each block.
  struct Ground {
    SimPort* port = nullptr;
    uint32_t node = 0;
    uint32_t rkey = 0;    // 0: a receive buffer
    uint32_t srq_id = 0;  // of a receive buffer
  };
  // Puts message.data() into `places`, beginning now. Says from when on all of it is there.
  int64_t Land(Message& message, const Ground& ground, InOrder promise,
               std::span<const Place> places);

 private:
  struct Block {
    std::byte* to;
    uint32_t offset;
    uint32_t length_bytes;
    int64_t when_ns;
  };
  // A copy of what is still to land; the message itself may be gone by then.
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

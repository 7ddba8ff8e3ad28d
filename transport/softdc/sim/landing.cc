// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/landing.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/mutation.h"
#include "transport/softdc/sim/sim_fabric.h"

namespace sluice::softdc::sim {
namespace {

constexpr uint32_t kPromisedBytes = 128;
constexpr uint32_t kLeastBytes = 8;
constexpr uint32_t kSizes = 5;         // 8 to 128
constexpr uint32_t kLongGapEvery = 8;  // on average, one long gap in this many blocks
constexpr int64_t kLongGapFactor = 10;

}  // namespace

uint32_t Landings::BlockBytes(InOrder promise, uint32_t length_bytes) {
  const uint32_t least =
      promise == InOrder::kBlocks128 ? kPromisedBytes : kLeastBytes << world_.random.Below(kSizes);
  return std::max(least, std::bit_ceil(length_bytes / kMaxBlocks + 1));
}

// The bounds of blocks depend on the address only if the guarantee does. So a run does not depend on the
// address of a buffer on the heap.
void Landings::Cut(Landing* landing, InOrder promise, std::span<const Place> places,
                   uint32_t block_bytes) {
  uint32_t offset = 0;
  const auto length = static_cast<uint32_t>(landing->bytes.size());
  for (const Place& place : places) {
    const uint32_t here = std::min(place.length_bytes, length - offset);
    for (uint32_t done = 0; done < here;) {
      std::byte* to = place.address + done;
      const auto from = promise == InOrder::kBlocks128 ? reinterpret_cast<uintptr_t>(to) : done;
      const auto into = static_cast<uint32_t>(from % block_bytes);
      const uint32_t size = std::min(here - done, block_bytes - into);
      landing->blocks.push_back(
          {.to = to, .offset = offset + done, .length_bytes = size, .when_ns = 0});
      done += size;
    }
    offset += here;
  }
}

int64_t Landings::Land(Message& message, const Ground& ground, InOrder promise,
                       std::span<const Place> places) {
  const uint32_t length = message.wqe.length_bytes;
  if (Mutated(Mutation::kPayloadUnordered)) promise = InOrder::kNone;
  const uint32_t block_bytes =
      promise == InOrder::kWholeMessage ? UINT32_MAX : BlockBytes(promise, length);
  if (length <= kLeastBytes || promise == InOrder::kWholeMessage) {
    const std::byte* from = message.data();
    uint32_t left = length;
    for (const Place& place : places) {
      const uint32_t size = std::min(place.length_bytes, left);
      if (size != 0) std::memcpy(place.address, from, size);
      from += size;
      left -= size;
    }
    if (ground.rkey != 0) world_.Tell(ground.node, Activity::kWritten);
    return world_.now_ns();
  }
  if (free_.empty()) {
    all_.push_back(std::make_unique<Landing>());
    free_.push_back(all_.back().get());
  }
  Landing* landing = free_.back();
  free_.pop_back();
  landing->ground = ground;
  landing->from_node = message.from_node;
  landing->sequence = message.sequence;
  landing->bytes.assign(message.data(), message.data() + length);
  landing->blocks.clear();
  landing->next = 0;
  Cut(landing, promise, places, block_bytes);
  std::vector<Block>& blocks = landing->blocks;
  for (size_t i = blocks.size() - 1; i > 0; --i) {
    std::swap(blocks[i], blocks[world_.random.Below(i + 1)]);
  }
  int64_t when_ns = world_.now_ns();
  const auto gap_ns = static_cast<uint64_t>(world_.options.block_gap_ns);
  for (Block& block : blocks) {
    block.when_ns = when_ns;
    auto next_ns = static_cast<int64_t>(world_.random.Below(gap_ns + 1));
    if (world_.random.Below(kLongGapEvery) == 0) next_ns *= kLongGapFactor;
    when_ns += next_ns;
  }
  // An event at this time runs after the last block.
  const int64_t end_ns = blocks.back().when_ns + 1;
  OnBlock(landing);
  return end_ns;
}

void Landings::FireBlock(void* self, uint64_t landing) {
  static_cast<Landings*>(self)->OnBlock(reinterpret_cast<Landing*>(landing));
}

bool Landings::Stands(const Ground& ground) const {
  const std::vector<SimPort*>& ports = world_.nodes[ground.node].ports;
  if (std::find(ports.begin(), ports.end(), ground.port) == ports.end()) return false;
  if (ground.port->dead()) return false;
  Context& context = ground.port->context();
  if (ground.rkey == 0) return context.FindSrq(ground.srq_id) != nullptr;
  const uint32_t index = ground.rkey >> 8;
  return index < context.regions().size() &&
         context.regions()[index].key.load(std::memory_order_relaxed) == ground.rkey;
}

void Landings::OnBlock(Landing* landing) {
  const bool stands = Stands(landing->ground);
  while (landing->next != landing->blocks.size()) {
    const Block& block = landing->blocks[landing->next];
    if (block.when_ns > world_.now_ns()) {
      world_.clock.ScheduleAt(block.when_ns, &FireBlock, this, reinterpret_cast<uint64_t>(landing));
      return;
    }
    if (stands) std::memcpy(block.to, &landing->bytes[block.offset], block.length_bytes);
    world_.Log(LogKind::kBlock, landing->ground.node, landing->from_node, landing->sequence,
               block.offset);
    ++landing->next;
  }
  if (landing->ground.rkey != 0) world_.Tell(landing->ground.node, Activity::kWritten);
  free_.push_back(landing);
}

}  // namespace sluice::softdc::sim

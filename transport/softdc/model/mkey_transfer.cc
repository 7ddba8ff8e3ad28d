// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/mkey_transfer.h"

#include <infiniband/verbs.h>

#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {
namespace {

// Returns the memory range of a wire range. Without a signature, both are the same.
std::optional<signature::Extent> ExtentOf(const MkeyConfig& config, uint64_t wire_start,
                                          uint64_t wire_bytes) {
  if (!config.has_signature()) {
    return signature::Extent{
        .data_start = wire_start, .memory_start = wire_start, .memory_bytes = wire_bytes};
  }
  return signature::ExtentOf(config.signature, wire_start, wire_bytes);
}

MkeyStatus LocateAll(const MkeyConfig& config, MkeyMemory& memory, const signature::Extent& extent,
                     uint32_t access) {
  MkeyStatus status = MkeyStatus::kGood;
  const bool inside = ForEachPiece(config, extent.memory_start, extent.memory_bytes,
                                   [&](uint64_t address, uint64_t bytes, uint32_t lkey) {
                                     status =
                                         memory.Locate(address, bytes, lkey, access, config.pd);
                                     return status == MkeyStatus::kGood;
                                   });
  return inside || status != MkeyStatus::kGood ? status : MkeyStatus::kDenied;
}

}  // namespace

MkeyStatus LoadMkey(MkeyTableArea& table, uint32_t key, uint32_t access, uint32_t pd,
                    MkeyConfig* config) {
  MkeyArea* area = table.Find(key);
  if (area == nullptr || !area->config.Load(config) || !Valid(*config) ||
      config->entry_count == 0 || config->pd != pd ||
      ((config->access & access) != access && !Mutated(Mutation::kMkeyGrantsAll))) {
    return MkeyStatus::kDenied;
  }
  return MkeyStatus::kGood;
}

MkeyStatus CheckMkeyRange(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                          uint64_t wire_bytes, uint32_t access) {
  const auto extent = ExtentOf(config, wire_start, wire_bytes);
  return extent ? LocateAll(config, memory, *extent, access) : MkeyStatus::kDenied;
}

MkeyStatus GatherThroughMkey(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                             uint64_t wire_bytes, std::vector<std::byte>* wire,
                             std::optional<signature::Mismatch>* mismatch) {
  const auto extent = ExtentOf(config, wire_start, wire_bytes);
  if (!extent) return MkeyStatus::kDenied;
  const MkeyStatus status = LocateAll(config, memory, *extent, 0);
  if (status != MkeyStatus::kGood) return status;

  std::vector<std::byte> gathered(extent->memory_bytes);
  size_t at = 0;
  const bool read = ForEachPiece(config, extent->memory_start, extent->memory_bytes,
                                 [&](uint64_t address, uint64_t bytes, uint32_t lkey) {
                                   const auto to = std::span(gathered).subspan(at, bytes);
                                   at += bytes;
                                   return memory.Read(address, lkey, to);
                                 });
  if (!read) return MkeyStatus::kFailed;
  if (config.has_signature()) {
    std::vector<std::byte> transformed;
    *mismatch = signature::Transform(config.signature, signature::Direction::kToWire,
                                     extent->data_start, gathered, wire_bytes, &transformed);
    gathered = std::move(transformed);
    if (Mutated(Mutation::kMismatchUnseen)) mismatch->reset();
  }
  if (wire->empty()) {
    *wire = std::move(gathered);
  } else {
    wire->insert(wire->end(), gathered.begin(), gathered.end());
  }
  return MkeyStatus::kGood;
}

MkeyStatus ScatterThroughMkey(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                              std::span<const std::byte> wire,
                              std::optional<signature::Mismatch>* mismatch) {
  const auto extent = ExtentOf(config, wire_start, wire.size());
  if (!extent) return MkeyStatus::kDenied;
  const MkeyStatus status = LocateAll(config, memory, *extent, IBV_ACCESS_LOCAL_WRITE);
  if (status != MkeyStatus::kGood) return status;

  std::vector<std::byte> transformed;
  std::span<const std::byte> bytes = wire;
  if (config.has_signature()) {
    *mismatch = signature::Transform(config.signature, signature::Direction::kFromWire,
                                     extent->data_start, wire, wire.size(), &transformed);
    bytes = transformed;
  }
  const bool written = ForEachPiece(config, extent->memory_start, extent->memory_bytes,
                                    [&](uint64_t address, uint64_t piece_bytes, uint32_t lkey) {
                                      const auto from = bytes.first(piece_bytes);
                                      bytes = bytes.subspan(piece_bytes);
                                      return memory.Write(address, lkey, from);
                                    });
  return written ? MkeyStatus::kGood : MkeyStatus::kFailed;
}

}  // namespace sluice::softdc

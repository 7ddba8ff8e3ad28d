// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/mkey_stage.h"

#include <cstring>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/mkey.h"
#include "transport/softdc/shm/copy.h"

namespace sluice::softdc {

MkeyStatus LocalMkeyMemory::Locate(uint64_t address, uint64_t length_bytes, uint32_t lkey,
                                   uint32_t access, uint32_t pd) {
  if (length_bytes > UINT32_MAX) return MkeyStatus::kDenied;
  const ibv_sge sge{.addr = address, .length = static_cast<uint32_t>(length_bytes), .lkey = lkey};
  return FindLocalRegion(context_, sge, pd, access) == nullptr ? MkeyStatus::kDenied
                                                               : MkeyStatus::kGood;
}

bool LocalMkeyMemory::Read(uint64_t address, uint32_t, std::span<std::byte> to) {
  std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
  return true;
}

bool LocalMkeyMemory::Write(uint64_t address, uint32_t, std::span<const std::byte> from) {
  shm::CopyInOrder(reinterpret_cast<std::byte*>(address), from.data(), from.size());
  return true;
}

bool MkeyStage::Gather(Context& context, uint32_t pd, std::span<const ibv_sge> sges) {
  LocalMkeyMemory memory(context);
  for (const ibv_sge& sge : sges) {
    if (!IsMkey(sge.lkey)) {
      if (FindLocalRegion(context, sge, pd, 0) == nullptr) return false;
      const auto* from = reinterpret_cast<const std::byte*>(sge.addr);
      bytes_.insert(bytes_.end(), from, from + sge.length);
      continue;
    }
    MkeyConfig config;
    std::optional<signature::Mismatch> mismatch;
    if (LoadMkey(context.mkeys().area(), sge.lkey, 0, pd, &config) != MkeyStatus::kGood ||
        GatherThroughMkey(config, memory, sge.addr, sge.length, &bytes_, &mismatch) !=
            MkeyStatus::kGood) {
      return false;
    }
    Note(sge.lkey, mismatch);
  }
  return true;
}

bool MkeyStage::Prepare(Context& context, uint32_t pd, std::span<const ibv_sge> sges) {
  LocalMkeyMemory memory(context);
  size_t size_bytes = 0;
  for (const ibv_sge& sge : sges) {
    size_bytes += sge.length;
    MkeyConfig config;
    const bool good = IsMkey(sge.lkey)
                          ? LoadMkey(context.mkeys().area(), sge.lkey, IBV_ACCESS_LOCAL_WRITE, pd,
                                     &config) == MkeyStatus::kGood &&
                                CheckMkeyRange(config, memory, sge.addr, sge.length,
                                               IBV_ACCESS_LOCAL_WRITE) == MkeyStatus::kGood
                          : FindLocalRegion(context, sge, pd, IBV_ACCESS_LOCAL_WRITE) != nullptr;
    if (!good) return false;
  }
  bytes_.resize(size_bytes);
  sges_.assign(sges.begin(), sges.end());
  return true;
}

void MkeyStage::Scatter(Context& context, uint32_t pd) {
  LocalMkeyMemory memory(context);
  std::span<const std::byte> bytes = bytes_;
  for (const ibv_sge& sge : sges_) {
    const auto piece = bytes.first(sge.length);
    bytes = bytes.subspan(sge.length);
    // If a key has changed in the meantime, nothing is written.
    if (!IsMkey(sge.lkey)) {
      if (FindLocalRegion(context, sge, pd, IBV_ACCESS_LOCAL_WRITE) == nullptr) continue;
      memory.Write(sge.addr, sge.lkey, piece);
      continue;
    }
    MkeyConfig config;
    std::optional<signature::Mismatch> mismatch;
    if (LoadMkey(context.mkeys().area(), sge.lkey, IBV_ACCESS_LOCAL_WRITE, pd, &config) ==
        MkeyStatus::kGood) {
      ScatterThroughMkey(config, memory, sge.addr, piece, &mismatch);
    }
    Note(sge.lkey, mismatch);
  }
}

bool MkeyStage::Record(Context& context, uint32_t cq_id) const {
  MkeyTableArea& table = context.mkeys().area();
  for (const auto& [key, mismatch] : mismatches_) {
    if (MkeyArea* area = table.Find(key)) table.Record(*area, mismatch, cq_id);
  }
  return !mismatches_.empty();
}

}  // namespace sluice::softdc

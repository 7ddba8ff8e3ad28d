// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/target_keys.h"

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/mkey.h"
#include "transport/softdc/model/mkey_stage.h"

namespace sluice::softdc::sim {

TargetKeys::TargetKeys(Context& context, Responder& responder)
    : context_(context),
      table_(context.mkeys().area()),
      pd_(responder.descriptor().pd),
      cq_id_(responder.cq().id()) {}

MkeyStatus TargetKeys::Load(uint32_t key, uint32_t access, MkeyConfig* config) {
  return LoadMkey(table_, key, access, pd_, config);
}

void TargetKeys::Record(uint32_t key, const std::optional<signature::Mismatch>& mismatch) {
  if (!mismatch) return;
  if (MkeyArea* area = table_.Find(key)) table_.Record(*area, *mismatch, cq_id_);
}

bool TargetKeys::Allows(uint32_t key, uint64_t start, uint64_t wire_bytes, uint32_t access) {
  MkeyConfig config;
  LocalMkeyMemory memory(context_);
  const uint32_t on_pieces =
      access == IBV_ACCESS_REMOTE_READ ? 0 : static_cast<uint32_t>(IBV_ACCESS_LOCAL_WRITE);
  return Load(key, access, &config) == MkeyStatus::kGood &&
         CheckMkeyRange(config, memory, start, wire_bytes, on_pieces) == MkeyStatus::kGood;
}

bool TargetKeys::Write(uint32_t key, uint64_t start, std::span<const std::byte> wire,
                       uint32_t access) {
  MkeyConfig config;
  if (Load(key, access, &config) != MkeyStatus::kGood) return false;
  LocalMkeyMemory memory(context_);
  std::optional<signature::Mismatch> mismatch;
  const MkeyStatus status = ScatterThroughMkey(config, memory, start, wire, &mismatch);
  Record(key, mismatch);
  return status == MkeyStatus::kGood;
}

bool TargetKeys::Read(uint32_t key, uint64_t start, uint64_t wire_bytes,
                      std::vector<std::byte>* wire) {
  MkeyConfig config;
  if (Load(key, IBV_ACCESS_REMOTE_READ, &config) != MkeyStatus::kGood) return false;
  LocalMkeyMemory memory(context_);
  std::optional<signature::Mismatch> mismatch;
  const MkeyStatus status = GatherThroughMkey(config, memory, start, wire_bytes, wire, &mismatch);
  Record(key, mismatch);
  return status == MkeyStatus::kGood;
}

}  // namespace sluice::softdc::sim

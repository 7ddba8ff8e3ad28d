// SPDX-License-Identifier: Apache-2.0
#include "middleware/flow/flow.h"

#include "middleware/flow/flow_engine.h"

namespace sluice::flow {

absl::Status Flow::Send(std::span<const std::byte> message) const {
  return engine_->Send(*this, message);
}
absl::StatusOr<FlowBuffer> Flow::Reserve(uint32_t bytes) const {
  return engine_->Reserve(*this, bytes);
}
void Flow::Commit(const FlowBuffer& buffer, uint32_t bytes) const {
  engine_->Commit(*this, buffer, bytes);
}
void Flow::Cancel(const FlowBuffer& buffer) const { engine_->Cancel(*this, buffer); }
void Flow::Consume(uint32_t messages) const { engine_->Consume(*this, messages); }
void Flow::Close(const absl::Status& why) const { engine_->CloseFlow(*this, why); }

bool Flow::is_open() const {
  const Record* record = engine_->Find(*this);
  return record != nullptr && record->state == FlowState::kOpen;
}

uint32_t Flow::limit_bytes() const {
  const Record* record = engine_->Find(*this);
  return record == nullptr ? 0 : engine_->ConnectionOf(*record).limit_bytes;
}

FlowTotals Flow::totals() const {
  const Record* record = engine_->Find(*this);
  return record == nullptr ? FlowTotals() : record->totals();
}

}  // namespace sluice::flow

// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/mkey_delivery.h"

#include "transport/softdc/model/arrival.h"
#include "transport/softdc/shm/copy.h"

namespace sluice::softdc {
namespace {

using Kind = shm::RemotePlace::Kind;

// Memory of the peer, in pieces that can be accessed.
class RemoteMkeyMemory : public MkeyMemory {
 public:
  RemoteMkeyMemory(OutboundLinks& links, shm::OutboundLink& link, uint32_t pd)
      : links_(links), link_(link), pd_(pd) {}

  MkeyStatus Locate(uint64_t address, uint64_t length_bytes, uint32_t lkey, uint32_t access,
                    uint32_t pd) override {
    MkeyStatus status = MkeyStatus::kGood;
    ForEachPlace(address, length_bytes, lkey, access, pd,
                 [&](const shm::RemotePlace& place, uint64_t) {
                   if (place.kind == Kind::kNotMapped) {
                     links_.AskSegment(&link_, place.segment);
                     status = MkeyStatus::kAgain;
                   } else if (place.kind == Kind::kPrivate && !link_.ReadyForPrivate()) {
                     status = MkeyStatus::kAgain;
                   } else if (place.kind == Kind::kDenied) {
                     status = MkeyStatus::kDenied;
                   }
                   return status == MkeyStatus::kGood;
                 });
    return status;
  }

  bool Read(uint64_t address, uint32_t lkey, std::span<std::byte> to) override {
    return ForEachPlace(address, to.size(), lkey, 0, pd_,
                        [&](const shm::RemotePlace& place, uint64_t at) {
                          std::byte* here = to.data() + at;
                          if (place.kind == Kind::kMapped) {
                            shm::CopyInOrder(here, place.address, place.length_bytes);
                            return true;
                          }
                          return place.kind == Kind::kPrivate &&
                                 Done(link_.ReadPrivate(place, 0, here, place.length_bytes));
                        });
  }

  bool Write(uint64_t address, uint32_t lkey, std::span<const std::byte> from) override {
    return ForEachPlace(address, from.size(), lkey, 0, pd_,
                        [&](const shm::RemotePlace& place, uint64_t at) {
                          const std::byte* here = from.data() + at;
                          if (place.kind == Kind::kMapped) {
                            shm::CopyInOrder(place.address, here, place.length_bytes);
                            return true;
                          }
                          return place.kind == Kind::kPrivate &&
                                 Done(link_.WritePrivate(place, 0, here, place.length_bytes));
                        });
  }

  // Returns kNobody instead of kFailed if the transfer failed because the peer is gone.
  MkeyStatus Judge(MkeyStatus status) const {
    return status == MkeyStatus::kFailed && nobody_ ? MkeyStatus::kNobody : status;
  }

 private:
  bool Done(shm::PrivateCopy copy) {
    nobody_ |= copy == shm::PrivateCopy::kNobody;
    return copy == shm::PrivateCopy::kDone;
  }

  // Calls visit(place, bytes before it) for each place, until a call returns false. Returns false if a call did, or if access is denied.
  template <typename Visit>
  bool ForEachPlace(uint64_t address, uint64_t length_bytes, uint32_t lkey, uint32_t access,
                    uint32_t pd, Visit visit) {
    for (uint64_t at = 0; at < length_bytes;) {
      const shm::MemoryRegionEntry* region =
          JudgeRange(link_.regions(), lkey, address + at, length_bytes - at, access, pd,
                     /*qp_number=*/0);
      if (region == nullptr) return false;
      const shm::RemotePlace place =
          link_.Place(*region, address + at - region->address, length_bytes - at);
      if (!visit(place, at)) return false;
      at += place.length_bytes;
    }
    return true;
  }

  OutboundLinks& links_;
  shm::OutboundLink& link_;
  const uint32_t pd_;
  bool nobody_ = false;
};

// Returns the peer's table, or null if its place in the peer's header is invalid.
MkeyTableArea* TableOf(const shm::OutboundLink& link) {
  std::byte* header = link.arena().At(0, sizeof(shm::ArenaHeader));
  const uint64_t offset = reinterpret_cast<const shm::ArenaHeader*>(header)->mkeys_offset;
  if (offset == 0 || offset % alignof(MkeyTableArea) != 0) return nullptr;
  return reinterpret_cast<MkeyTableArea*>(link.arena().At(offset, sizeof(MkeyTableArea)));
}

}  // namespace

MkeyDelivery::MkeyDelivery(OutboundLinks& links, shm::OutboundLink& link, uint32_t pd,
                           uint32_t cq_id)
    : links_(links), link_(link), pd_(pd), cq_id_(cq_id), table_(TableOf(link)) {}

MkeyStatus MkeyDelivery::Load(uint32_t key, uint32_t access, MkeyConfig* config) {
  return table_ == nullptr ? MkeyStatus::kDenied : LoadMkey(*table_, key, access, pd_, config);
}

void MkeyDelivery::Record(uint32_t key, const std::optional<signature::Mismatch>& mismatch) {
  if (!mismatch) return;
  if (MkeyArea* area = table_->Find(key)) table_->Record(*area, *mismatch, cq_id_);
}

MkeyStatus MkeyDelivery::Write(uint32_t key, uint64_t start, std::span<const std::byte> wire,
                               uint32_t access) {
  MkeyConfig config;
  MkeyStatus status = Load(key, access, &config);
  if (status != MkeyStatus::kGood) return status;
  RemoteMkeyMemory memory(links_, link_, pd_);
  std::optional<signature::Mismatch> mismatch;
  status = memory.Judge(ScatterThroughMkey(config, memory, start, wire, &mismatch));
  Record(key, mismatch);
  return status;
}

MkeyStatus MkeyDelivery::Read(uint32_t key, uint64_t start, uint64_t wire_bytes, uint32_t access,
                              std::vector<std::byte>* wire) {
  MkeyConfig config;
  MkeyStatus status = Load(key, access, &config);
  if (status != MkeyStatus::kGood) return status;
  RemoteMkeyMemory memory(links_, link_, pd_);
  std::optional<signature::Mismatch> mismatch;
  status = memory.Judge(GatherThroughMkey(config, memory, start, wire_bytes, wire, &mismatch));
  Record(key, mismatch);
  return status;
}

}  // namespace sluice::softdc

// SPDX-License-Identifier: Apache-2.0
//
// Moves bytes through an indirect memory key: gathers or scatters its pieces, and checks, strips or inserts its signature. This happens at the
// end that owns the key's memory, by any process that can reach the memory: MkeyMemory provides the access.
//
// Messages contain bytes as on the wire. Offsets and lengths in SGEs and requests count these bytes.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_TRANSFER_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_TRANSFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/softdc/model/mkey_area.h"
#include "transport/softdc/model/mkey_layout.h"

namespace sluice::softdc {

enum class MkeyStatus : uint8_t {
  kGood,
  kDenied,  // key, range, right or protection domain
  kAgain,   // the memory cannot be accessed yet
  kFailed,  // it cannot be read or written
  kNobody,  // the owner is gone
};

// Memory of the owner of the key.
class MkeyMemory {
 public:
  virtual ~MkeyMemory() = default;

  // Checks that the region `lkey` of that protection domain covers the range, grants `access`, and can be accessed. Called for every piece
  // before the first byte moves.
  virtual MkeyStatus Locate(uint64_t address, uint64_t length_bytes, uint32_t lkey, uint32_t access,
                            uint32_t pd) = 0;
  // Read or write a piece that was located. False: the transfer ends with kFailed.
  virtual bool Read(uint64_t address, uint32_t lkey, std::span<std::byte> to) = 0;
  virtual bool Write(uint64_t address, uint32_t lkey, std::span<const std::byte> from) = 0;
};

// Loads the configuration of `key`. Returns kDenied unless it has a layout, belongs to `pd` and grants all of `access`.
MkeyStatus LoadMkey(MkeyTableArea& table, uint32_t key, uint32_t access, uint32_t pd,
                    MkeyConfig* config);

// Appends the wire bytes [wire_start, wire_start + wire_bytes) of the key to `wire`. Sets `mismatch` if a signature is wrong.
MkeyStatus GatherThroughMkey(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                             uint64_t wire_bytes, std::vector<std::byte>* wire,
                             std::optional<signature::Mismatch>* mismatch);

// Writes the bytes of `wire` through the key, from wire byte `wire_start` on. Writes nothing unless it returns kGood or kFailed.
MkeyStatus ScatterThroughMkey(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                              std::span<const std::byte> wire,
                              std::optional<signature::Mismatch>* mismatch);

// Checks a transfer without moving bytes. Returns kGood if the transfer would return kGood or kFailed. `access`: IBV_ACCESS_LOCAL_WRITE for
// a scatter.
MkeyStatus CheckMkeyRange(const MkeyConfig& config, MkeyMemory& memory, uint64_t wire_start,
                          uint64_t wire_bytes, uint32_t access);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MKEY_TRANSFER_H_

// SPDX-License-Identifier: Apache-2.0
//
// Memory regions: registration, and the check of a local key on each use.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/softdc/shm/srq_area.h"

namespace sluice::softdc {

class Context;

// Null with errno set. man ibv_reg_mr.
ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access);
int DeregisterMemory(ibv_mr* mr);

// The memory that a local SGE names, if its key covers it, belongs to `pd` and grants all of `access`
// (IBV_ACCESS_LOCAL_WRITE for what is written to). Null: a local protection error.
std::byte* LocalMemory(Context& context, const ibv_sge& sge, uint32_t pd, uint32_t access);

// The same place as peers name it. Nothing: the key does not cover it.
std::optional<shm::Sge> SharedPlace(Context& context, const ibv_sge& sge, uint32_t pd);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MEMORY_REGION_H_

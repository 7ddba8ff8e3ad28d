// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/registration.h"

#include <cerrno>

#include "transport/softdc/verbs.h"

namespace sluice::softdc::preload {

ibv_mr* RegMrIova(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova, int access) {
  if (iova != reinterpret_cast<uintptr_t>(address)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return Verbs().reg_mr(pd, address, length_bytes, access);
}

ibv_mr* RegMrIova2(ibv_pd* pd, void* address, size_t length_bytes, uint64_t iova,
                   unsigned int access) {
  return RegMrIova(pd, address, length_bytes, iova,
                   static_cast<int>(access & ~unsigned{IBV_ACCESS_OPTIONAL_RANGE}));
}

}  // namespace sluice::softdc::preload

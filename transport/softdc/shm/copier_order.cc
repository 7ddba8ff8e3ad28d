// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/copier_order.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sluice::softdc::shm {

bool internal::RegisterCopier() {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void MakeCopiersSee() {
  FullFence();
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

}  // namespace sluice::softdc::shm

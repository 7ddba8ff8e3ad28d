// SPDX-License-Identifier: Apache-2.0
//
// A NIC that takes 20 seconds to reset a stream, so that a page can be looked at meanwhile. softdc takes microseconds.
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <thread>

#define SYMBOL "_ZN6sluice6softdc18DvDciStreamIdResetEP6ibv_qpt"

int ResetOfSoftdc(ibv_qp* qp, uint16_t stream_id) __asm__("__real_" SYMBOL);
int SlowReset(ibv_qp* qp, uint16_t stream_id) __asm__("__wrap_" SYMBOL);

int SlowReset(ibv_qp* qp, uint16_t stream_id) {
  std::this_thread::sleep_for(std::chrono::seconds(20));
  return ResetOfSoftdc(qp, stream_id);
}

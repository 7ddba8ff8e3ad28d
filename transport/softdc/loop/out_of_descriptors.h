// SPDX-License-Identifier: Apache-2.0
//
// Detects that this process has no file descriptors left, and reports it. No verb has an error for this: to a
// sender, the target appears not to respond. So the reason goes to standard error, at most once a minute.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_

#include <sys/types.h>

namespace sluice::softdc {

// Returns whether `error`, the errno of a call that creates a descriptor, means that none is free. An
// immediate retry is useless.
bool IsOutOfDescriptors(int error);

// Reports that this process refuses a sender, or cannot reach a target.
void ReportOutOfDescriptors();
// Reports that the peer with id `pid` has refused this process.
void ReportTurnedAway(pid_t pid);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_

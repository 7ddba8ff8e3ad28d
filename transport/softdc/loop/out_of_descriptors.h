// SPDX-License-Identifier: Apache-2.0
//
// Detects that this process has no file descriptors left, and reports it. No verb has an error for this: to a sender, its target does not
// respond. So the reason goes to standard error, at most once a minute.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_
#define SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_

#include <sys/types.h>

namespace sluice::softdc {

// Of errno, after a call that makes a descriptor. Trying again at once is of no use.
bool IsOutOfDescriptors(int error);

// This process turns away one that wants to send to it, or cannot reach one itself.
void ReportOutOfDescriptors();
// The peer has turned this process away. `pid`: of the peer.
void ReportTurnedAway(pid_t pid);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_LOOP_OUT_OF_DESCRIPTORS_H_

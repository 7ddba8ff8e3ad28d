// SPDX-License-Identifier: Apache-2.0
//
// The commands that are written to a descriptor of RDMA_CM: each is a header, a structure (abi.h)
// and, in most structures, the address of a response. Their order of checks, and their errnos, are
// the kernel's (ucma.c). Where a command is shorter than its structure, and the kernel
// would read behind it, the rest counts as zeros here.
//
// Threads       As the engine.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::ucma {

// A descriptor's channel, or nullptr: not one of ours. For MIGRATE_ID, which names one.
using FindChannel = std::function<std::shared_ptr<cm::Channel>(int fd)>;

// Runs the command in [address, address + bytes). 0 or an errno value; GET_EVENT says EAGAIN when
// there is none, whether the descriptor blocks or not.
int Execute(cm::Channel* channel, uint64_t address, size_t bytes, const FindChannel& find);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_

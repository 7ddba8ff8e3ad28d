// SPDX-License-Identifier: Apache-2.0
//
// Runs the commands that a program writes to a descriptor of RDMA_CM. Each command is a header, a structure
// (abi.h) and, in most structures, the address of a response. The order of checks and the errnos are those of
// the kernel (ucma.c). If a command is shorter than its structure, the kernel would read beyond it. Here the
// rest counts as zeros.
//
// Threads       As the engine (cm/engine.h).
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::ucma {

// Returns the channel of a descriptor, or nullptr if the descriptor has none. For MIGRATE_ID, which names a
// descriptor.
using FindChannel = std::function<std::shared_ptr<cm::Channel>(int fd)>;

// Runs the command in [address, address + bytes). Returns 0 or an errno value. GET_EVENT returns EAGAIN if
// there is no event, whether the descriptor blocks or not.
int Execute(cm::Channel* channel, uint64_t address, size_t bytes, const FindChannel& find);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_COMMANDS_H_

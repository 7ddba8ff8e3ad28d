// SPDX-License-Identifier: Apache-2.0
//
// Ways of message_cost that a user writes: messages between two endpoints, and calls through a Channel in each style. All
// on one thread: what the client's end polls, it polls the server's end beside.
#ifndef SLUICE_BENCHMARKS_STYLE_WAYS_H_
#define SLUICE_BENCHMARKS_STYLE_WAYS_H_

#include <memory>
#include <string>

#include "benchmarks/way.h"

namespace sluice::benchmarks {

// "raw", "sync" (a batch of one), "callback", "coroutine"; null for another name.
std::unique_ptr<Way> MakeStyleWay(const std::string& name);

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_STYLE_WAYS_H_

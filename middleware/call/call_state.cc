// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_state.h"

namespace sluice::call {

const char* Name(CallState state) { return kCallTable.NameOf(state); }
const char* Name(CallEvent event) { return kCallTable.NameOf(event); }
std::string PrintCallStates() { return kCallTable.Print(); }

}  // namespace sluice::call

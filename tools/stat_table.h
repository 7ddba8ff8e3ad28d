// SPDX-License-Identifier: Apache-2.0
//
// StatTable(): the difference of two snapshots of a server, as a table.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TOOLS_STAT_TABLE_H_
#define SLUICE_TOOLS_STAT_TABLE_H_

#include <string>

#include "proto/introspection.pb.h"

namespace sluice::tools {

// What came between: counts since the start become counts of the time between, those of now stay. `before` empty: since
// the server's start.
introspection::v1::LookReply Between(const introspection::v1::LookReply& before,
                                     const introspection::v1::LookReply& after);

// `difference` is what Between() made; `seconds` it covers, 0: the server's whole life, rates are left out.
std::string StatTable(const introspection::v1::LookReply& difference, double seconds);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_STAT_TABLE_H_

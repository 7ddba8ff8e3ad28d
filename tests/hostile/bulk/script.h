// SPDX-License-Identifier: Apache-2.0
//
// Script: what a hostile bulk port does, drawn from a seed, as grammar.h has it for calls: manners, acts with dice of their own,
// an ending.
//
// Threads       Values and pure functions.
#ifndef SLUICE_TESTS_HOSTILE_BULK_SCRIPT_H_
#define SLUICE_TESTS_HOSTILE_BULK_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/hostile/grammar.h"

namespace sluice::hostile::bulk_port {

enum class Operation : uint8_t {
  kJoin,         // with an honest ticket
  kJoinLying,    // with a lie in the ticket, or in the capability
  kLeave,        // a goodbye
  kNotice,       // of a transfer that was made
  kLieInNotice,  // one field of it
  kPieces,       // of a transfer, in any order, some twice, some never
  kAhead,        // of transfers far ahead, each of many pieces
  kGarbage,      // a word of random bytes
  kTooLong,      // more than a buffer holds
  kLieInHead,    // of a word: place, token, number, kind
  kGrants,       // true, or a lie
  kFloodGrants,  // many of them
  kFloodWords,   // beyond the credit
  kQueue,        // makes a queue pair, and says where it is
  kQueueLying,   // says that it is somewhere else
  kReady,        // whether it is or not
  kClose,
  kClosed,
  kTell,           // a notice by the queue pair, true or not
  kTellGarbage,    // random bytes by the queue pair
  kTransfer,       // a protected transfer by the queue pair, good or refused
  kWrite,          // into the memory that was lent
  kRead,           // from there
  kWriteAnywhere,  // where nothing was lent
  kWriteLate,      // where something was lent before
  kAnnounce,       // a write that takes a receive buffer and is no word
  kReturnLease,    // the lender takes the memory back, and lends other
  kPutOut,         // the lender disconnects it
  kCount,
};

struct OperationInfo {
  Operation operation;
  const char* name;
  uint32_t weight;
};
std::span<const OperationInfo> Operations();
const char* Name(Operation operation);

// How it behaves towards what comes in, all through the script.
struct Manners {
  bool reads = true;     // else its receive buffers run out
  bool answers = true;   // words about queue pairs
  bool connects = true;  // queue pairs to that of the other side
  bool returns = true;   // whoever was ended joins again
  Granting granting = Granting::kAlways;
  uint32_t window = 16;         // words that its ticket says it takes
  uint32_t piece_bytes = 8192;  // in its ticket
  uint32_t personas = 1;        // peers at the same time
};

struct Act {
  Operation operation = Operation::kJoin;
  uint32_t persona = 0;
  uint64_t dice = 0;
  int64_t pause_ns = 0;  // afterwards
};

struct Script {
  Manners manners;
  std::vector<Act> acts;
  Ending ending = Ending::kGoodbye;
};

Script Draw(uint64_t seed);
std::string ToString(const Script& script);

}  // namespace sluice::hostile::bulk_port

#endif  // SLUICE_TESTS_HOSTILE_BULK_SCRIPT_H_

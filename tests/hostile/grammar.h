// SPDX-License-Identifier: Apache-2.0
//
// Grammar: what a hostile peer does, drawn from a seed.
//
//   script := manners act* ending
//   act    := operation persona dice pause
//
// A seed enables about a third of the operations (each with a weight), so that some scripts consist of few kinds of acts, which go
// deep. An act's details are drawn from its own dice: acts can be left out, and the others stay what they are.
//
// Threads       Values and pure functions.
#ifndef SLUICE_TESTS_HOSTILE_GRAMMAR_H_
#define SLUICE_TESTS_HOSTILE_GRAMMAR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::hostile {

enum class Operation : uint8_t {
  kDial,        // a connection, with an honest hello
  kDialLying,   // a hello with a lie in it, a recorded one, or one without DC
  kProveLying,  // a proof whose seal is wrong, or whose terms can't be, or a second one
  kHangUp,      // the connection ends without a goodbye
  kGoodbye,     // with one, whose number may be a lie
  kCredits,     // true, or a lie
  kProbe,
  kFloodControl,  // many of one kind
  kLaneAsk,
  kLaneAnswer,
  kStrayControl,  // a handshake's message after the handshake, an unknown kind, a body where none belongs
  kForge,         // a prefix with another peer's index, or another token
  kRequest,  // a call: Echo, Hold, Pipe or none that exists
  kStream,   // what belongs to a stream
  kCancel,
  kFlow,  // messages of flows, which this server does not have
  kDrain,
  kLarge,  // a message that says where a large one is
  kTaken,
  kLieInHeader,    // a good message with one lie in its header
  kGarbage,        // random bytes, of any length
  kTooLong,        // more than the receive buffer holds
  kBurst,          // calls, as many as there is credit for
  kOvercommit,     // calls beyond the credit
  kNumbers,        // repeats, skips and forges the numbers of messages
  kLaneWrite,      // into a lane that was granted, good or not
  kAnnounce,       // an announcement of what was not written
  kWriteAnywhere,  // where nothing was granted
  kCount,
};

// How an operation reads in a script, and why it is not drawn: nullptr, it is.
struct OperationInfo {
  Operation operation;
  const char* name;
  uint32_t weight;
};
std::span<const OperationInfo> Operations();
const char* Name(Operation operation);

enum class Granting : uint8_t { kAlways, kSlowly, kNever };
enum class Ending : uint8_t { kGoodbye, kHangUp, kSilence, kKill, kPortDown };

// How it behaves towards what comes in, all through the script.
struct Manners {
  bool establishes = true;  // connections that were accepted
  bool proves = true;
  bool answers = true;  // probes, and what is asked about lanes
  bool reads = true;    // else its receive buffers run out
  bool returns = true;  // whom the server has ended dials again
  Granting granting = Granting::kAlways;
  uint32_t window = 16;   // that its terms grant
  uint32_t personas = 1;  // connections at the same time
};

struct Act {
  Operation operation = Operation::kDial;
  uint32_t persona = 0;
  uint64_t dice = 0;
  int64_t pause_ns = 0;  // afterwards
};

struct Script {
  Manners manners;
  std::vector<Act> acts;
  Ending ending = Ending::kGoodbye;
};

// What is known to break, and is not drawn: the line goes when it is mended.
struct Withheld {
  const char* what;  // the name of an operation or of a manner, or "interceptors"
  const char* why;
};
std::span<const Withheld> KnownDefects();
bool IsWithheld(std::string_view what);

// `withhold`: without what is known to break.
Script Draw(uint64_t seed, bool withhold = true);
std::string ToString(const Script& script);

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_GRAMMAR_H_

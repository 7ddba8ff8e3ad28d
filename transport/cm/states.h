// SPDX-License-Identifier: Apache-2.0
//
// The states of an RDMA_CM connection with an external QP number, as a table.
#ifndef SLUICE_TRANSPORT_CM_STATES_H_
#define SLUICE_TRANSPORT_CM_STATES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::cm {

enum class State : uint8_t {
  kIdle,  // the record is free
  // Active side.
  kBackingOff,  // waits for the time of the next try
  kResolvingName,
  kResolvingAddress,
  kResolvingRoute,
  kConnecting,    // REQ sent
  kResponding,    // REP received; its path is being read
  kResponded,     // the user decides
  kEstablishing,  // RTU is being sent
  // Passive side.
  kRequesting,  // REQ received; its path is being read
  kRequested,   // the user decides
  kAccepting,   // REP sent
  // Both.
  kEstablished,
  kClosing,     // DREQ sent
  kTimewait,    // both sides have disconnected; number and id are kept
  kDestroying,  // the id is being freed
};
inline constexpr int kStateCount = 16;

enum class Event : uint8_t {
  kConnectCalled,
  kTryAgain,     // time of the next try, which resolves the name again
  kNextAddress,  // time of the next try, with the next address of the name
  kNameResolved,
  kAddressResolved,
  kRouteResolved,
  kResponse,  // RDMA_CM_EVENT_CONNECT_RESPONSE
  kPathRead,
  kEstablishCalled,
  kEstablishSent,
  kRequest,  // RDMA_CM_EVENT_CONNECT_REQUEST
  kAcceptCalled,
  kRejectCalled,
  kEstablishedSeen,  // RDMA_CM_EVENT_ESTABLISHED
  kRetryable,        // the try failed, and a retry may succeed
  kFailed,           // an error event, a reject, or a command that failed
  kDisconnected,     // RDMA_CM_EVENT_DISCONNECTED
  kTimewaitExit,     // RDMA_CM_EVENT_TIMEWAIT_EXIT
  kCloseCalled,
  kDeadline,
  kDestroyed,
};
inline constexpr int kEventCount = 21;

enum class Action : uint8_t {
  kIgnore,
  kWait,  // destroys the id of the last try; its number goes into quarantine
  kResolveName,
  kResolveAddress,
  kResolveRoute,
  kConnect,
  kReadPath,
  kTellResponse,
  kEstablish,
  kTellRequest,
  kAccept,
  kReject,
  kTellUp,
  kTellDownAndDestroy,
  kTellDownAndAnswer,  // DREQ received: answer it, keep the id for its timewait
  kDisconnect,
  kAnswerAndKeep,  // DREP received, or both sides sent a DREQ at once
  kDestroy,
  kFree,
};

struct Transition {
  Action action = Action::kIgnore;
  State next = State::kIdle;
};

// Returns the action and the next state for `event` in `state`. A pair that is not in the table is ignored and does not change the state.
Transition Next(State state, Event event);

std::string_view Name(State state);
std::string_view Name(Event event);
std::string_view Name(Action action);

// Returns the table, one line per transition: "connecting: response -> read path -> responding".
std::string PrintTable();

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_STATES_H_

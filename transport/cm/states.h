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
  kBackingOff,  // until the next try's turn comes
  kResolvingName,
  kResolvingAddress,
  kResolvingRoute,
  kConnecting,    // REQ sent
  kResponding,    // REP came; its path is being read
  kResponded,     // the user looks at it
  kEstablishing,  // RTU is being sent
  // Passive side.
  kRequesting,  // REQ came; its path is being read
  kRequested,   // the user looks at it
  kAccepting,   // REP sent
  // Both.
  kEstablished,
  kClosing,     // DREQ sent
  kTimewait,    // both sides have said goodbye; number and id are kept
  kDestroying,  // the id is being freed
};
inline constexpr int kStateCount = 16;

enum class Event : uint8_t {
  kConnectCalled,
  kTryAgain,     // its turn has come: from the name on
  kNextAddress,  // its turn has come, and the name has more addresses
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
  kRetryable,        // the try failed, another is worth it
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
  kWait,  // lets go of the last try's id; its number goes into quarantine
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
  kTellDownAndAnswer,  // a DREQ came: answer it, keep the id for its timewait
  kDisconnect,
  kAnswerAndKeep,  // the answer came, or the other side's DREQ crossed ours
  kDestroy,
  kFree,
};

struct Transition {
  Action action = Action::kIgnore;
  State next = State::kIdle;
};

// What `event` does in `state`. A pair that is not in the table is ignored and leaves the state as
// it is.
Transition Next(State state, Event event);

std::string_view Name(State state);
std::string_view Name(Event event);
std::string_view Name(Action action);

// The table, one line per transition: "connecting: response -> read path -> responding".
std::string PrintTable();

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_STATES_H_

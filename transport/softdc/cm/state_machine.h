// SPDX-License-Identifier: Apache-2.0
//
// The states of an rdma_cm_id as a table: the inputs that are legal in each state, the next state, the actions, and the event for the
// application.
//
// It follows the kernel's two machines (rdma_cm and ib_cm) as far as an application can see the difference,
// with external queue pairs. "Active" is the side that calls rdma_connect, "passive" the side that gets
// CONNECT_REQUEST. A call that is not in the table fails with EINVAL. A message or timer that is not in the
// table is ignored.
//
// Threads       Any: pure functions without I/O.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_STATE_MACHINE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_STATE_MACHINE_H_

#include <cstdint>
#include <span>
#include <string>

namespace sluice::softdc::cm {

enum class State : uint8_t {
  kIdle,
  kAddrBound,
  kAddrQuery,
  kAddrResolved,
  kRouteQuery,
  kRouteResolved,
  kListen,
  kReqSent,      // active
  kRepReceived,  // active, after CONNECT_RESPONSE
  kReqReceived,  // passive, from CONNECT_REQUEST on
  kRepSent,      // passive, accepted
  kEstablished,
  kDreqSent,
  kDreqReceived,  // the peer disconnected or died; the application has not disconnected yet
  kTimewait,
  // Datagrams (RDMA_PS_UDP, RDMA_PS_IPOIB): one request for the peer's queue pair, one answer.
  kSidrSent,      // active
  kSidrReceived,  // passive, from CONNECT_REQUEST on
  kDatagram,      // answered; there is no connection
  kClosed,        // rejected, failed, or after timewait: permits only rdma_destroy_id
};

enum class Input : uint8_t {
  // Calls of the application.
  kBindCall,
  kResolveAddrCall,
  kResolveRouteCall,
  kListenCall,
  kConnectCall,
  kConnectDatagramCall,
  kAcceptCall,
  kAcceptRefusedCall,  // rdma_accept with arguments that the kernel refuses
  kRejectCall,
  kEstablishCall,
  kNotifyCall,  // rdma_notify(IBV_EVENT_COMM_EST)
  kDisconnectCall,
  // Answers of address and route resolution.
  kAddrFound,
  kAddrMissing,
  kRouteFound,
  kRouteMissing,
  // Messages of the peer.
  kReq,   // repeated: the answer to it was lost
  kMra,   // the peer application has received the message: allow it more time
  kBusy,  // the listener's backlog is full
  kRep,
  kRepStale,  // a REP whose queue pair number is in use
  kRej,
  kRtu,
  kDreq,
  kDrep,
  kSidrRep,
  kSidrRefusal,
  // The fabric.
  kRefused,     // there is no listener on the port
  kUnanswered,  // the connection to the peer process ended before any answer
  kPeerGone,    // the connection to the peer process ended
  kGarbage,     // the peer sent an invalid message
  kExhausted,   // no descriptors or memory left on this side
  kDuplicate,   // another id connects with the queue pair number of this connection
  // Timers.
  kRetryTimer,
  kLastRetryTimer,
  kTimewaitTimer,
};

enum class Action : uint8_t {
  kNone,
  kBind,
  kBindAndResolve,
  kResolveAddr,
  kResolveRoute,
  kListen,
  kBindAndListen,
  kSendReq,
  kRepeatReq,
  kReconnect,
  kExtend,
  kAwaitRetry,
  kTakeRep,
  kRejectStaleRep,
  kSendMra,
  kSendRep,
  kRepeatRep,
  kSendRej,
  kSendRtu,
  kSendDreq,
  kRepeatDreq,
  kSendDrep,
  kStopRepeats,
  kSendSidrReq,
  kRepeatSidrReq,
  kTakeSidrRep,
  kSendSidrRep,
  kSendSidrRefusal,
};

// Event for the application. The values are those of rdma_cm_event_type, plus none.
enum class Told : uint8_t {
  kNothing,
  kAddrResolved,
  kAddrError,
  kRouteResolved,
  kRouteError,
  kConnectResponse,
  kConnectError,
  kUnreachable,
  kRejected,
  kEstablished,
  kDisconnected,
  kTimewaitExit,
};

struct Row {
  State from;
  Input input;
  State to;
  Action action;
  Told told;
};

std::span<const Row> Table();

// Returns nullptr if the input is not legal in this state.
const Row* FindRow(State from, Input input);

const char* Name(State state);
const char* Name(Input input);
const char* Name(Action action);
const char* Name(Told told);

// Returns one line per row, for readers and for the snapshot test.
std::string PrintTable();

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_STATE_MACHINE_H_

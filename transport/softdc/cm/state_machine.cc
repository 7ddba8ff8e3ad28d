// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/state_machine.h"

#include <array>

namespace sluice::softdc::cm {
namespace {

using A = Action;
using I = Input;
using S = State;
using T = Told;

constexpr Row kTable[] = {
    {S::kIdle, I::kBindCall, S::kAddrBound, A::kBind, T::kNothing},
    {S::kIdle, I::kResolveAddrCall, S::kAddrQuery, A::kBindAndResolve, T::kNothing},
    {S::kIdle, I::kListenCall, S::kListen, A::kBindAndListen, T::kNothing},

    {S::kAddrBound, I::kResolveAddrCall, S::kAddrQuery, A::kResolveAddr, T::kNothing},
    {S::kAddrBound, I::kListenCall, S::kListen, A::kListen, T::kNothing},

    {S::kAddrQuery, I::kAddrFound, S::kAddrResolved, A::kNone, T::kAddrResolved},
    {S::kAddrQuery, I::kAddrMissing, S::kAddrBound, A::kNone, T::kAddrError},

    {S::kAddrResolved, I::kResolveRouteCall, S::kRouteQuery, A::kResolveRoute, T::kNothing},
    {S::kRouteQuery, I::kRouteFound, S::kRouteResolved, A::kNone, T::kRouteResolved},
    {S::kRouteQuery, I::kRouteMissing, S::kAddrResolved, A::kNone, T::kRouteError},

    {S::kRouteResolved, I::kConnectCall, S::kReqSent, A::kSendReq, T::kNothing},
    {S::kRouteResolved, I::kConnectDatagramCall, S::kSidrSent, A::kSendSidrReq, T::kNothing},

    {S::kReqSent, I::kMra, S::kReqSent, A::kExtend, T::kNothing},
    {S::kReqSent, I::kBusy, S::kReqSent, A::kAwaitRetry, T::kNothing},
    {S::kReqSent, I::kRep, S::kRepReceived, A::kTakeRep, T::kConnectResponse},
    {S::kReqSent, I::kRepStale, S::kReqSent, A::kRejectStaleRep, T::kNothing},
    {S::kReqSent, I::kRej, S::kClosed, A::kNone, T::kRejected},
    {S::kReqSent, I::kRefused, S::kClosed, A::kNone, T::kRejected},
    {S::kReqSent, I::kUnanswered, S::kReqSent, A::kReconnect, T::kNothing},
    {S::kReqSent, I::kPeerGone, S::kClosed, A::kNone, T::kRejected},
    {S::kReqSent, I::kGarbage, S::kClosed, A::kNone, T::kConnectError},
    {S::kReqSent, I::kExhausted, S::kClosed, A::kNone, T::kConnectError},
    {S::kReqSent, I::kRetryTimer, S::kReqSent, A::kRepeatReq, T::kNothing},
    {S::kReqSent, I::kLastRetryTimer, S::kClosed, A::kNone, T::kUnreachable},
    {S::kReqSent, I::kRejectCall, S::kClosed, A::kSendRej, T::kNothing},
    {S::kReqSent, I::kDisconnectCall, S::kReqSent, A::kNone, T::kNothing},

    {S::kRepReceived, I::kEstablishCall, S::kEstablished, A::kSendRtu, T::kNothing},
    {S::kRepReceived, I::kRejectCall, S::kClosed, A::kSendRej, T::kNothing},
    {S::kRepReceived, I::kRep, S::kRepReceived, A::kSendMra, T::kNothing},
    {S::kRepReceived, I::kRej, S::kClosed, A::kNone, T::kRejected},
    {S::kRepReceived, I::kPeerGone, S::kClosed, A::kNone, T::kRejected},
    {S::kRepReceived, I::kGarbage, S::kClosed, A::kSendRej, T::kConnectError},
    {S::kRepReceived, I::kDisconnectCall, S::kRepReceived, A::kNone, T::kNothing},

    // Before the passive application accepts, it gets no events: if the client disappears, accept fails.
    {S::kReqReceived, I::kAcceptCall, S::kRepSent, A::kSendRep, T::kNothing},
    {S::kReqReceived, I::kAcceptRefusedCall, S::kClosed, A::kSendRej, T::kNothing},
    {S::kReqReceived, I::kRejectCall, S::kClosed, A::kSendRej, T::kNothing},
    {S::kReqReceived, I::kReq, S::kReqReceived, A::kSendMra, T::kNothing},
    {S::kReqReceived, I::kRej, S::kClosed, A::kNone, T::kNothing},
    {S::kReqReceived, I::kPeerGone, S::kClosed, A::kNone, T::kNothing},
    {S::kReqReceived, I::kGarbage, S::kClosed, A::kSendRej, T::kNothing},
    {S::kReqReceived, I::kDisconnectCall, S::kReqReceived, A::kNone, T::kNothing},

    {S::kRepSent, I::kReq, S::kRepSent, A::kRepeatRep, T::kNothing},
    {S::kRepSent, I::kMra, S::kRepSent, A::kExtend, T::kNothing},
    {S::kRepSent, I::kRetryTimer, S::kRepSent, A::kRepeatRep, T::kNothing},
    {S::kRepSent, I::kLastRetryTimer, S::kClosed, A::kNone, T::kUnreachable},
    {S::kRepSent, I::kRtu, S::kEstablished, A::kNone, T::kEstablished},
    {S::kRepSent, I::kNotifyCall, S::kEstablished, A::kNone, T::kEstablished},
    {S::kRepSent, I::kRej, S::kClosed, A::kNone, T::kRejected},
    {S::kRepSent, I::kPeerGone, S::kClosed, A::kNone, T::kRejected},
    {S::kRepSent, I::kGarbage, S::kClosed, A::kSendRej, T::kConnectError},
    {S::kRepSent, I::kRejectCall, S::kClosed, A::kSendRej, T::kNothing},
    {S::kRepSent, I::kDreq, S::kDreqReceived, A::kNone, T::kDisconnected},
    {S::kRepSent, I::kDisconnectCall, S::kRepSent, A::kNone, T::kNothing},

    {S::kEstablished, I::kRep, S::kEstablished, A::kSendRtu, T::kNothing},
    {S::kEstablished, I::kNotifyCall, S::kEstablished, A::kNone, T::kNothing},
    {S::kEstablished, I::kDisconnectCall, S::kDreqSent, A::kSendDreq, T::kNothing},
    {S::kEstablished, I::kDuplicate, S::kDreqSent, A::kSendDreq, T::kNothing},
    {S::kEstablished, I::kDreq, S::kDreqReceived, A::kNone, T::kDisconnected},
    {S::kEstablished, I::kPeerGone, S::kDreqReceived, A::kNone, T::kDisconnected},
    {S::kEstablished, I::kGarbage, S::kDreqReceived, A::kNone, T::kDisconnected},

    {S::kDreqSent, I::kDrep, S::kTimewait, A::kNone, T::kDisconnected},
    // Both sides disconnected at the same time. As in the kernel, each has to answer; one answer is
    // sufficient for both.
    {S::kDreqSent, I::kDreq, S::kDreqReceived, A::kNone, T::kDisconnected},
    {S::kDreqSent, I::kPeerGone, S::kTimewait, A::kNone, T::kDisconnected},
    {S::kDreqSent, I::kGarbage, S::kTimewait, A::kNone, T::kDisconnected},
    {S::kDreqSent, I::kRetryTimer, S::kDreqSent, A::kRepeatDreq, T::kNothing},
    {S::kDreqSent, I::kLastRetryTimer, S::kTimewait, A::kNone, T::kDisconnected},
    {S::kDreqSent, I::kDisconnectCall, S::kDreqSent, A::kNone, T::kNothing},

    {S::kDreqReceived, I::kDisconnectCall, S::kTimewait, A::kSendDrep, T::kNothing},
    {S::kDreqReceived, I::kDrep, S::kTimewait, A::kNone, T::kNothing},

    {S::kTimewait, I::kDisconnectCall, S::kTimewait, A::kNone, T::kNothing},
    {S::kTimewait, I::kDreq, S::kTimewait, A::kSendDrep, T::kNothing},
    {S::kTimewait, I::kTimewaitTimer, S::kClosed, A::kNone, T::kTimewaitExit},

    {S::kSidrSent, I::kMra, S::kSidrSent, A::kStopRepeats, T::kNothing},
    {S::kSidrSent, I::kBusy, S::kSidrSent, A::kAwaitRetry, T::kNothing},
    {S::kSidrSent, I::kSidrRep, S::kDatagram, A::kTakeSidrRep, T::kEstablished},
    {S::kSidrSent, I::kSidrRefusal, S::kClosed, A::kNone, T::kUnreachable},
    {S::kSidrSent, I::kRefused, S::kClosed, A::kNone, T::kUnreachable},
    {S::kSidrSent, I::kUnanswered, S::kSidrSent, A::kReconnect, T::kNothing},
    {S::kSidrSent, I::kPeerGone, S::kSidrSent, A::kReconnect, T::kNothing},
    {S::kSidrSent, I::kGarbage, S::kClosed, A::kNone, T::kConnectError},
    {S::kSidrSent, I::kExhausted, S::kClosed, A::kNone, T::kConnectError},
    {S::kSidrSent, I::kRetryTimer, S::kSidrSent, A::kRepeatSidrReq, T::kNothing},
    {S::kSidrSent, I::kLastRetryTimer, S::kClosed, A::kNone, T::kUnreachable},
    {S::kSidrSent, I::kDisconnectCall, S::kSidrSent, A::kNone, T::kNothing},

    // The passive side does not notice that a client is gone: the answer is lost.
    {S::kSidrReceived, I::kAcceptCall, S::kDatagram, A::kSendSidrRep, T::kNothing},
    {S::kSidrReceived, I::kAcceptRefusedCall, S::kClosed, A::kSendSidrRefusal, T::kNothing},
    {S::kSidrReceived, I::kRejectCall, S::kClosed, A::kSendSidrRefusal, T::kNothing},
    {S::kSidrReceived, I::kReq, S::kSidrReceived, A::kSendMra, T::kNothing},
    {S::kSidrReceived, I::kDisconnectCall, S::kSidrReceived, A::kNone, T::kNothing},

    {S::kDatagram, I::kDisconnectCall, S::kDatagram, A::kNone, T::kNothing},

    {S::kClosed, I::kDisconnectCall, S::kClosed, A::kNone, T::kNothing},
};

constexpr const char* kStateNames[] = {
    "Idle",          "AddrBound",    "AddrQuery", "AddrResolved", "RouteQuery",
    "RouteResolved", "Listen",       "ReqSent",   "RepReceived",  "ReqReceived",
    "RepSent",       "Established",  "DreqSent",  "DreqReceived", "Timewait",
    "SidrSent",      "SidrReceived", "Datagram",  "Closed",
};
constexpr const char* kInputNames[] = {
    "bind()",
    "resolve_addr()",
    "resolve_route()",
    "listen()",
    "connect()",
    "connect(datagram)",
    "accept()",
    "accept(refused)",
    "reject()",
    "establish()",
    "notify()",
    "disconnect()",
    "addr found",
    "addr missing",
    "route found",
    "route missing",
    "REQ",
    "MRA",
    "busy",
    "REP",
    "REP stale",
    "REJ",
    "RTU",
    "DREQ",
    "DREP",
    "SIDR REP",
    "SIDR refusal",
    "refused",
    "unanswered",
    "peer gone",
    "garbage",
    "exhausted",
    "duplicate",
    "retry timer",
    "last retry timer",
    "timewait timer",
};
constexpr const char* kActionNames[] = {
    "-",
    "bind",
    "bind+resolve",
    "resolve addr",
    "resolve route",
    "listen",
    "bind+listen",
    "send REQ",
    "repeat REQ",
    "reconnect",
    "extend",
    "await retry",
    "take REP",
    "send REJ stale",
    "send MRA",
    "send REP",
    "repeat REP",
    "send REJ",
    "send RTU",
    "send DREQ",
    "repeat DREQ",
    "send DREP",
    "stop repeats",
    "send SIDR REQ",
    "repeat SIDR REQ",
    "take SIDR REP",
    "send SIDR REP",
    "send SIDR refusal",
};
constexpr const char* kToldNames[] = {
    "-",           "ADDR_RESOLVED",    "ADDR_ERROR",    "ROUTE_RESOLVED",
    "ROUTE_ERROR", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE",
    "REJECTED",    "ESTABLISHED",      "DISCONNECTED",  "TIMEWAIT_EXIT",
};
static_assert(std::size(kStateNames) == static_cast<size_t>(S::kClosed) + 1);
static_assert(std::size(kInputNames) == static_cast<size_t>(I::kTimewaitTimer) + 1);
static_assert(std::size(kActionNames) == static_cast<size_t>(A::kSendSidrRefusal) + 1);
static_assert(std::size(kToldNames) == static_cast<size_t>(T::kTimewaitExit) + 1);

}  // namespace

std::span<const Row> Table() { return kTable; }

const Row* FindRow(State from, Input input) {
  for (const Row& row : kTable) {
    if (row.from == from && row.input == input) return &row;
  }
  return nullptr;
}

const char* Name(State state) { return kStateNames[static_cast<size_t>(state)]; }
const char* Name(Input input) { return kInputNames[static_cast<size_t>(input)]; }
const char* Name(Action action) { return kActionNames[static_cast<size_t>(action)]; }
const char* Name(Told told) { return kToldNames[static_cast<size_t>(told)]; }

std::string PrintTable() {
  std::string text;
  for (const Row& row : kTable) {
    text.append(Name(row.from)).append(" | ").append(Name(row.input)).append(" | ");
    text.append(Name(row.to)).append(" | ").append(Name(row.action)).append(" | ");
    text.append(Name(row.told)).append("\n");
  }
  return text;
}

}  // namespace sluice::softdc::cm

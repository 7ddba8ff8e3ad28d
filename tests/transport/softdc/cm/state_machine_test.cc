// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/state_machine.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace sluice::softdc::cm {
namespace state_machine_test {

// from | input | to | action | event. A change here is a change of behaviour: compare it with the
// facts first.
constexpr char kSnapshot[] = R"(Idle | bind() | AddrBound | bind | -
Idle | resolve_addr() | AddrQuery | bind+resolve | -
Idle | listen() | Listen | bind+listen | -
AddrBound | resolve_addr() | AddrQuery | resolve addr | -
AddrBound | listen() | Listen | listen | -
AddrQuery | addr found | AddrResolved | - | ADDR_RESOLVED
AddrQuery | addr missing | AddrBound | - | ADDR_ERROR
AddrResolved | resolve_route() | RouteQuery | resolve route | -
RouteQuery | route found | RouteResolved | - | ROUTE_RESOLVED
RouteQuery | route missing | AddrResolved | - | ROUTE_ERROR
RouteResolved | connect() | ReqSent | send REQ | -
RouteResolved | connect(datagram) | SidrSent | send SIDR REQ | -
ReqSent | MRA | ReqSent | extend | -
ReqSent | busy | ReqSent | await retry | -
ReqSent | REP | RepReceived | take REP | CONNECT_RESPONSE
ReqSent | REP stale | ReqSent | send REJ stale | -
ReqSent | REJ | Closed | - | REJECTED
ReqSent | refused | Closed | - | REJECTED
ReqSent | unanswered | ReqSent | reconnect | -
ReqSent | peer gone | Closed | - | REJECTED
ReqSent | garbage | Closed | - | CONNECT_ERROR
ReqSent | exhausted | Closed | - | CONNECT_ERROR
ReqSent | retry timer | ReqSent | repeat REQ | -
ReqSent | last retry timer | Closed | - | UNREACHABLE
ReqSent | reject() | Closed | send REJ | -
ReqSent | disconnect() | ReqSent | - | -
RepReceived | establish() | Established | send RTU | -
RepReceived | reject() | Closed | send REJ | -
RepReceived | REP | RepReceived | send MRA | -
RepReceived | REJ | Closed | - | REJECTED
RepReceived | peer gone | Closed | - | REJECTED
RepReceived | garbage | Closed | send REJ | CONNECT_ERROR
RepReceived | disconnect() | RepReceived | - | -
ReqReceived | accept() | RepSent | send REP | -
ReqReceived | accept(refused) | Closed | send REJ | -
ReqReceived | reject() | Closed | send REJ | -
ReqReceived | REQ | ReqReceived | send MRA | -
ReqReceived | REJ | Closed | - | -
ReqReceived | peer gone | Closed | - | -
ReqReceived | garbage | Closed | send REJ | -
ReqReceived | disconnect() | ReqReceived | - | -
RepSent | REQ | RepSent | repeat REP | -
RepSent | MRA | RepSent | extend | -
RepSent | retry timer | RepSent | repeat REP | -
RepSent | last retry timer | Closed | - | UNREACHABLE
RepSent | RTU | Established | - | ESTABLISHED
RepSent | notify() | Established | - | ESTABLISHED
RepSent | REJ | Closed | - | REJECTED
RepSent | peer gone | Closed | - | REJECTED
RepSent | garbage | Closed | send REJ | CONNECT_ERROR
RepSent | reject() | Closed | send REJ | -
RepSent | DREQ | DreqReceived | - | DISCONNECTED
RepSent | disconnect() | RepSent | - | -
Established | REP | Established | send RTU | -
Established | notify() | Established | - | -
Established | disconnect() | DreqSent | send DREQ | -
Established | duplicate | DreqSent | send DREQ | -
Established | DREQ | DreqReceived | - | DISCONNECTED
Established | peer gone | DreqReceived | - | DISCONNECTED
Established | garbage | DreqReceived | - | DISCONNECTED
DreqSent | DREP | Timewait | - | DISCONNECTED
DreqSent | DREQ | DreqReceived | - | DISCONNECTED
DreqSent | peer gone | Timewait | - | DISCONNECTED
DreqSent | garbage | Timewait | - | DISCONNECTED
DreqSent | retry timer | DreqSent | repeat DREQ | -
DreqSent | last retry timer | Timewait | - | DISCONNECTED
DreqSent | disconnect() | DreqSent | - | -
DreqReceived | disconnect() | Timewait | send DREP | -
DreqReceived | DREP | Timewait | - | -
Timewait | disconnect() | Timewait | - | -
Timewait | DREQ | Timewait | send DREP | -
Timewait | timewait timer | Closed | - | TIMEWAIT_EXIT
SidrSent | MRA | SidrSent | stop repeats | -
SidrSent | busy | SidrSent | await retry | -
SidrSent | SIDR REP | Datagram | take SIDR REP | ESTABLISHED
SidrSent | SIDR refusal | Closed | - | UNREACHABLE
SidrSent | refused | Closed | - | UNREACHABLE
SidrSent | unanswered | SidrSent | reconnect | -
SidrSent | peer gone | SidrSent | reconnect | -
SidrSent | garbage | Closed | - | CONNECT_ERROR
SidrSent | exhausted | Closed | - | CONNECT_ERROR
SidrSent | retry timer | SidrSent | repeat SIDR REQ | -
SidrSent | last retry timer | Closed | - | UNREACHABLE
SidrSent | disconnect() | SidrSent | - | -
SidrReceived | accept() | Datagram | send SIDR REP | -
SidrReceived | accept(refused) | Closed | send SIDR refusal | -
SidrReceived | reject() | Closed | send SIDR refusal | -
SidrReceived | REQ | SidrReceived | send MRA | -
SidrReceived | disconnect() | SidrReceived | - | -
Datagram | disconnect() | Datagram | - | -
Closed | disconnect() | Closed | - | -
)";

TEST(PrintTableTest, MatchesTheSnapshot) { EXPECT_EQ(PrintTable(), kSnapshot); }

TEST(TableTest, NoStateHasTwoRowsForOneInput) {
  std::set<std::pair<State, Input>> seen;
  for (const Row& row : Table()) {
    EXPECT_TRUE(seen.emplace(row.from, row.input).second)
        << Name(row.from) << " " << Name(row.input);
    EXPECT_EQ(FindRow(row.from, row.input), &row);
  }
  EXPECT_EQ(FindRow(State::kClosed, Input::kConnectCall), nullptr);
}

TEST(TableTest, EveryStateButTheRequestsIsReachedFromIdle) {
  std::set<State> reached = {State::kIdle};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const Row& row : Table()) {
      if (reached.count(row.from) != 0) reached.insert(row.to);
    }
  }
  for (int s = 0; s <= static_cast<int>(State::kClosed); ++s) {
    const State state = static_cast<State>(s);
    // Passive ids begin their life in ReqReceived or SidrReceived.
    const bool passive_only =
        state == State::kReqReceived || state == State::kRepSent || state == State::kSidrReceived;
    EXPECT_EQ(reached.count(state) != 0, !passive_only) << Name(state);
  }
}

TEST(TableTest, EveryStateWithAPeerHandlesItsDeath) {
  for (const State state : {State::kReqSent, State::kRepReceived, State::kReqReceived,
                            State::kRepSent, State::kEstablished, State::kDreqSent}) {
    EXPECT_NE(FindRow(state, Input::kPeerGone), nullptr) << Name(state);
    EXPECT_NE(FindRow(state, Input::kGarbage), nullptr) << Name(state);
  }
}

}  // namespace state_machine_test
}  // namespace sluice::softdc::cm

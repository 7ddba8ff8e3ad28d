// SPDX-License-Identifier: Apache-2.0
#include "transport/cm/states.h"

#include "gtest/gtest.h"

namespace sluice::cm {
namespace states_test {

TEST(PrintTable, Snapshot) {
  EXPECT_EQ(PrintTable(), R"(idle: connect called -> wait -> backing off
idle: request -> read path -> requesting
backing off: try again -> resolve name -> resolving name
backing off: next address -> resolve address -> resolving address
backing off: close called -> destroy -> destroying
backing off: deadline -> tell down, destroy -> destroying
resolving name: name resolved -> resolve address -> resolving address
resolving name: retryable -> wait -> backing off
resolving name: failed -> tell down, destroy -> destroying
resolving name: disconnected -> tell down, destroy -> destroying
resolving name: close called -> destroy -> destroying
resolving name: deadline -> tell down, destroy -> destroying
resolving address: address resolved -> resolve route -> resolving route
resolving address: retryable -> wait -> backing off
resolving address: failed -> tell down, destroy -> destroying
resolving address: disconnected -> tell down, destroy -> destroying
resolving address: close called -> destroy -> destroying
resolving address: deadline -> tell down, destroy -> destroying
resolving route: route resolved -> connect -> connecting
resolving route: retryable -> wait -> backing off
resolving route: failed -> tell down, destroy -> destroying
resolving route: disconnected -> tell down, destroy -> destroying
resolving route: close called -> destroy -> destroying
resolving route: deadline -> tell down, destroy -> destroying
connecting: response -> read path -> responding
connecting: retryable -> wait -> backing off
connecting: failed -> tell down, destroy -> destroying
connecting: disconnected -> tell down, destroy -> destroying
connecting: close called -> destroy -> destroying
connecting: deadline -> tell down, destroy -> destroying
responding: path read -> tell response -> responded
responding: failed -> tell down, destroy -> destroying
responding: disconnected -> tell down, destroy -> destroying
responding: close called -> destroy -> destroying
responding: deadline -> tell down, destroy -> destroying
responded: establish called -> establish -> establishing
responded: reject called -> reject -> destroying
responded: failed -> tell down, destroy -> destroying
responded: disconnected -> tell down, destroy -> destroying
responded: close called -> destroy -> destroying
responded: deadline -> tell down, destroy -> destroying
establishing: establish sent -> tell up -> established
establishing: failed -> tell down, destroy -> destroying
establishing: disconnected -> tell down, destroy -> destroying
establishing: close called -> destroy -> destroying
establishing: deadline -> tell down, destroy -> destroying
requesting: path read -> tell request -> requested
requesting: failed -> destroy -> destroying
requesting: disconnected -> destroy -> destroying
requesting: close called -> destroy -> destroying
requesting: deadline -> destroy -> destroying
requested: accept called -> accept -> accepting
requested: reject called -> reject -> destroying
requested: failed -> tell down, destroy -> destroying
requested: disconnected -> tell down, destroy -> destroying
requested: close called -> destroy -> destroying
requested: deadline -> tell down, destroy -> destroying
accepting: established seen -> tell up -> established
accepting: failed -> tell down, destroy -> destroying
accepting: disconnected -> tell down, destroy -> destroying
accepting: close called -> destroy -> destroying
accepting: deadline -> tell down, destroy -> destroying
established: failed -> tell down, destroy -> destroying
established: disconnected -> tell down, answer -> timewait
established: close called -> disconnect -> closing
closing: failed -> destroy -> destroying
closing: disconnected -> answer, keep -> timewait
closing: deadline -> destroy -> destroying
timewait: failed -> destroy -> destroying
timewait: timewait exit -> destroy -> destroying
timewait: deadline -> destroy -> destroying
destroying: destroyed -> free -> idle
)");
}

// A state other than idle and destroying must be left by a deadline or by closing: nothing hangs
// for ever.
TEST(Next, EveryStateHasAnEnd) {
  for (int s = 0; s < kStateCount; ++s) {
    const State state = static_cast<State>(s);
    if (state == State::kIdle || state == State::kDestroying) continue;
    const bool by_deadline = Next(state, Event::kDeadline).action != Action::kIgnore;
    const bool by_close = Next(state, Event::kCloseCalled).action != Action::kIgnore;
    const bool by_end = Next(state, Event::kDisconnected).action != Action::kIgnore;
    if (state == State::kEstablished) {
      EXPECT_TRUE(by_close && by_end);
    } else {
      EXPECT_TRUE(by_deadline) << Name(state);
    }
  }
}

// What a try that is over still has to say must not end the next one.
TEST(Next, LateWordsOfTheLastTryChangeNothing) {
  for (const Event event : {Event::kFailed, Event::kDisconnected, Event::kRetryable,
                            Event::kResponse, Event::kAddressResolved, Event::kRouteResolved}) {
    EXPECT_EQ(Next(State::kBackingOff, event).action, Action::kIgnore) << Name(event);
  }
}

// Its user hears of a request with its path, and not of its end if that comes before.
TEST(Next, RequestThatWasNotToldEndsUntold) {
  for (const Event event : {Event::kFailed, Event::kDisconnected, Event::kDeadline}) {
    EXPECT_EQ(Next(State::kRequesting, event).action, Action::kDestroy) << Name(event);
    EXPECT_EQ(Next(State::kRequested, event).action, Action::kTellDownAndDestroy) << Name(event);
  }
}

}  // namespace states_test
}  // namespace sluice::cm

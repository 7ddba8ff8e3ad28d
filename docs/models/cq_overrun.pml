/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of the overrun of a CQ whose completions others write (transport/softdc/shm/armed_word.h, Overrun): senders
 * with a ring each publish until one finds its ring full; it changes the word and tells the owner's firmware, and
 * from then on completions are lost. One sender may die between any two of its steps. The owner polls, until it
 * does not.
 *
 * Checked: the queue fails at most once, and only if something was lost; and when nothing can move any more, it has
 * failed if a completion of a living sender was lost, and every completion that was published can be polled.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#define SENDERS 2
#define MESSAGES 3 /* of each sender */
#define RING 1

#define FINE 0
#define DUE 1
#define KNOWN 2

/* Shared. */
byte overrun;
byte written[SENDERS], consumed[SENDERS];
byte bell;
bool dead[SENDERS];

/* Only for the checks. */
byte lost[SENDERS];
byte events, polled;
bool finished[SENDERS], buried;

inline Collect() {
  atomic {
    if
    :: overrun == DUE ->
      overrun = KNOWN;
      events++;
      assert(events == 1);
      assert(lost[0] + lost[1] > 0)
    :: else
    fi
  }
}

proctype Sender(byte p) provided (!dead[p]) {
  byte n, room;
  bool gives_up, took;
  do
  :: n == MESSAGES -> break
  :: n < MESSAGES ->
    n++;
    if
    :: !gives_up ->
      gives_up = (overrun != FINE);
      room = RING - (written[p] - consumed[p]);
      if
      :: !gives_up && room == 0 ->
        gives_up = true;
        lost[p]++;
#ifdef MUTANT_STORE_DUE
        overrun = DUE; took = true;
#else
        atomic {
          if
          :: overrun == FINE -> overrun = DUE; took = true
          :: else
          fi
        };
#endif
        if
        :: took -> bell++; took = false
        :: else
        fi
      :: gives_up -> lost[p]++
      :: !gives_up && room != 0 ->
        written[p]++
      fi
    :: gives_up -> lost[p]++
    fi
  od;
  finished[p] = true
}

/* Polls some, all at the end. */
proctype Owner() {
  byte p;
  do
  :: atomic { written[0] != consumed[0] -> consumed[0]++; polled++ }
  :: atomic { written[1] != consumed[1] -> consumed[1]++; polled++ }
  :: break
  od;
  (finished[1] && (finished[0] || dead[0]));
  do
  :: atomic { written[0] != consumed[0] -> consumed[0]++; polled++ }
  :: atomic { written[1] != consumed[1] -> consumed[1]++; polled++ }
  :: written[0] == consumed[0] && written[1] == consumed[1] -> break
  od
}

proctype Firmware() {
end:
  do
#ifdef MUTANT_DEAF_FIRMWARE
  :: bell > 1 -> bell--
#else
  :: atomic { bell > 0 -> bell-- }; Collect()
#endif
  od
}

proctype Undertaker() {
  dead[0] = true;
#ifndef MUTANT_FORGET_THE_DEAD
  Collect();
#endif
  buried = true
}

proctype Monitor() {
  timeout ->
  assert(finished[1] && buried);
  assert(overrun != DUE);                               /* nobody keeps it to himself */
  assert(lost[1] == 0 || events == 1);                  /* what is lost is told */
  assert(polled == written[0] + written[1])             /* what is not lost is there */
}

init {
  atomic {
    run Sender(0); run Sender(1);
    run Owner(); run Firmware(); run Undertaker(); run Monitor()
  }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of a lane whose receiver wants to sleep (transport/endpoint/lanes_in.cc, lanes_out.cc; docs/decisions/0026): a
 * sender that writes with or without a completion, as it was asked last; a device that lands each write, each completion and each
 * control message when it likes, writes in any order; a receiver that hushes, sleeps, is woken by completions, and wakes the lane.
 *
 * Checked: when nothing can move any more, every message was taken; and the receiver sleeps without a limit only if each message
 * that may still land raises an event.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... leaves one rule out, and must fail.
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef TURNS
#define TURNS 5 /* questions, at most */
#endif
#define SILENT 0
#define ANNOUNCED 1

/* The sender's. */
byte mode = SILENT;
byte written;
bool raises[MESSAGES]; /* with a completion */
/* The wire. Control messages are in order, and a later one says all that an earlier one said. */
bool asked, answered;
byte ask_turn, ask_mode, answer_turn, answer_mode, answer_written;
/* The receiver's. */
bool landed[MESSAGES];
byte completions, taken, turn;
byte wish = SILENT;           /* of the last question */
bool known;                   /* its answer has come */
byte before;                  /* written before that answer */
bool hushed, armed, bell, asleep;

inline raise() {
  completions++;
  if
  :: armed -> armed = false; bell = true
  :: else
  fi
}

active proctype Sender() {
end:
  do
  :: atomic { written < MESSAGES -> raises[written] = (mode == ANNOUNCED); written++ }
  :: atomic { asked ->
       asked = false;
#ifdef MUTANT_COUNT_TOO_SMALL
       answer_written = (written > 0 -> written - 1 : 0);
#else
       answer_written = written;
#endif
#ifndef MUTANT_ANSWERS_WITHOUT_SWITCHING
       mode = ask_mode;
#endif
       answer_turn = ask_turn; answer_mode = ask_mode; answered = true;
       raise() }
  od
}

/* In any order, as late as it likes. */
#define LAND(i) atomic { written > i && !landed[i] -> landed[i] = true; \
    if \
    :: raises[i] -> raise() \
    :: else \
    fi }
active proctype Device() {
end:
  do
  :: LAND(0)
  :: LAND(1)
  :: LAND(2)
  od
}

inline look() {
  do
  :: taken < MESSAGES && landed[taken] -> taken++
  :: else -> break
  od;
  if
#ifdef MUTANT_ANSWERED_IS_EMPTY
  :: wish == ANNOUNCED && known -> hushed = true
#else
  :: wish == ANNOUNCED && known && taken >= before -> hushed = true
#endif
  :: else
  fi
}

inline ask(m) {
  wish = m; turn++; known = false; hushed = false;
  ask_turn = turn; ask_mode = m; asked = true
}

active proctype Receiver() {
end:
  do
  /* A pass: completions, answers among them; and the lane, if it is watched. */
  :: atomic { !asleep && completions > 0 ->
       completions--;
       if
       :: answered ->
          answered = false;
          if
          :: answer_turn == turn -> known = true; before = answer_written
          :: else
          fi
       :: else
       fi;
       look() }
  :: atomic { !asleep && !hushed && taken < MESSAGES && landed[taken] -> look() }
  :: atomic { !asleep && wish == SILENT && turn < TURNS -> ask(ANNOUNCED) }
  :: atomic { !asleep && hushed && turn < TURNS -> ask(SILENT) }
  /* A sleep without a limit. A nap is a pass that comes later. */
#ifdef MUTANT_SLEEP_UNANSWERED
  :: atomic { !asleep && wish == ANNOUNCED ->
#else
  :: atomic { !asleep && hushed ->
#endif
       if
       :: completions > 0
       :: else -> armed = true; asleep = true
       fi }
  :: atomic { asleep && bell -> bell = false; asleep = false }
  od
}

active proctype Monitor() {
  timeout -> assert(taken == MESSAGES)
}

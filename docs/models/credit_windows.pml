/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of windows that follow activity (docs/decisions/0067): SENDERS peers share the BUFFERS receive buffers of one
 * receiver, which are fewer than all of them could use at once. A peer has no window until it asks (ASK), and keeps the
 * one that it was granted (GRANT) until it returns it (RETURN), by itself or when the receiver recalls it (RECALL).
 *
 * Messages and control messages of a sender are executed in the order in which they were posted, and a stream may
 * break: what was not executed is lost, and both sides say again what follows from their state. The receiver reads data
 * and control from two queues, in any order.
 *
 * With -DKEEPS a peer returns its window only when it is recalled. With -DSILENT (and -DKEEPS) one word about windows is lost and nobody
 * is told; when nothing moves any more, an ask or a recall that was not answered is said again.
 *
 * Checked: a message always finds a receive buffer, unless it is a copy of one that came before; promises never exceed the
 * buffers; and when nothing moves any more each message has been taken once, in order, and acknowledged.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#ifndef SENDERS
#define SENDERS 2
#endif
#ifndef BUFFERS
#define BUFFERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#ifndef WINDOW
#define WINDOW 2 /* at most, for one peer */
#endif
#ifndef ERRORS
#define ERRORS 1
#endif

mtype = { DATA, ASK, RETURN, GRANT, RECALL, REPORT };
mtype = { NONE, ASKED, ACTIVE };

/* Posted, not executed. Executed: data in receive buffers, control in others. */
chan wire[SENDERS] = [8] of { mtype, byte, byte };
chan data_cq[SENDERS] = [8] of { byte };
chan control_cq[SENDERS] = [6] of { mtype, byte, byte };
chan back[SENDERS] = [6] of { mtype, byte, byte, byte };

/* The sender's. */
mtype state[SENDERS] = NONE;
byte asked[SENDERS];   /* the number of its last ASK */
byte window[SENDERS];
byte sent[SENDERS], acked[SENDERS];
byte came[SENDERS];    /* messages executed for the first time */
bool used[SENDERS];    /* this window has carried a message */
bool recalled[SENDERS];

/* The receiver's. */
byte taken[SENDERS], told[SENDERS];
byte number[SENDERS];    /* of the ASK that was granted or waits */
bool waits[SENDERS];
byte held[SENDERS];      /* buffers promised */
bool returning[SENDERS];
byte until[SENDERS];     /* RETURN: messages sent under the window and before */
bool recalling[SENDERS];
byte first = 255;        /* the peer that waits longest, then the other */
byte second = 255;

/* Only for the checks. */
byte claimed, copies;
byte errors;
#ifdef SILENT
byte silent;
byte asked_again[SENDERS], recalled_again[SENDERS];
#ifdef MUTANT_SILENT_ASK
#define ASKS_AGAIN(i) false
#else
#define ASKS_AGAIN(i) (asked_again[i] < silent && state[i] == ASKED && len(wire[i]) < 8)
#endif
#ifdef MUTANT_SILENT_FORGET
#define RECALLS_AGAIN(i) false
#else
#define RECALLS_AGAIN(i) \
  (recalled_again[i] < silent && recalling[i] && !returning[i] && held[i] > 0 && len(back[i]) < 6)
#endif
#define ALL_SAID (!ASKS_AGAIN(0) && !ASKS_AGAIN(1) && !RECALLS_AGAIN(0) && !RECALLS_AGAIN(1))
#else
#define ALL_SAID true
#endif

#define FREE (BUFFERS - (held[0] + held[1]))

inline Return(i) {
  state[i] = NONE; window[i] = 0; recalled[i] = false;
  wire[i]!RETURN, asked[i], sent[i]
}

proctype Sender(byte i) {
  mtype what; byte a, b, c;
end:
  do
  /* something to send, and no window */
  :: atomic { state[i] == NONE && sent[i] < MESSAGES && len(wire[i]) < 8 ->
       asked[i]++; state[i] = ASKED; used[i] = false;
       wire[i]!ASK, asked[i], sent[i] }
  :: atomic { state[i] == ACTIVE && sent[i] < MESSAGES && sent[i] - acked[i] < window[i] && len(wire[i]) < 8 ->
       wire[i]!DATA, sent[i], 0; sent[i]++; used[i] = true }
#ifdef MUTANT_SEND_AFTER_RETURN
  :: atomic { state[i] == NONE && asked[i] > 0 && sent[i] < MESSAGES && len(wire[i]) < 8 ->
       wire[i]!DATA, sent[i], 0; sent[i]++ }
#endif
#ifndef KEEPS
  /* idle for a while */
  :: atomic { state[i] == ACTIVE && used[i] && acked[i] == sent[i] && len(wire[i]) < 8 -> Return(i) }
#endif
  /* all of it is in use: a larger one may be had */
  :: atomic { state[i] == ACTIVE && used[i] && sent[i] < MESSAGES && sent[i] - acked[i] >= window[i] && len(wire[i]) < 8 -> Return(i) }
  /* a window that was asked for is used once before it is returned, or recalls and requests could alternate for ever */
  :: atomic { state[i] == ACTIVE && recalled[i] && (used[i] || sent[i] == MESSAGES) && len(wire[i]) < 8 -> Return(i) }
  :: atomic { back[i]?what, a, b, c ->
       if
       :: c > acked[i] && c <= sent[i] -> acked[i] = c
       :: else
       fi;
       if
#ifdef MUTANT_TAKE_OLD_GRANT
       :: what == GRANT && state[i] == ASKED -> state[i] = ACTIVE; window[i] = b; recalled[i] = false
#else
       :: what == GRANT && state[i] == ASKED && a == asked[i] -> state[i] = ACTIVE; window[i] = b; recalled[i] = false
#endif
       :: what == RECALL && state[i] == ACTIVE && a == asked[i] -> recalled[i] = true
#if defined(SILENT) && !defined(MUTANT_SILENT_RECALL)
       :: what == RECALL && state[i] == ASKED -> wire[i]!ASK, asked[i], sent[i]
       :: what == RECALL && state[i] == NONE -> wire[i]!RETURN, asked[i], sent[i]
#endif
       :: else
       fi;
       what = DATA; a = 0; b = 0; c = 0 }
#ifdef SILENT
  :: atomic { silent < 1 && len(back[i]) > 0 && (back[i]?[GRANT, _, _, _] || back[i]?[RECALL, _, _, _]) ->
       back[i]?_, _, _, _; silent++ }
  :: atomic { timeout && ASKS_AGAIN(i) -> asked_again[i]++; wire[i]!ASK, asked[i], sent[i] }
#endif
  /* the stream breaks: what was not executed is lost; says again where it is, and what is not acknowledged */
  :: atomic { errors < ERRORS && len(wire[i]) > 0 ->
       errors++;
       do
       :: len(wire[i]) > 0 -> wire[i]?_, _, _
       :: else -> break
       od;
#ifndef MUTANT_NO_RESEND
       a = acked[i];
       do
       :: a < sent[i] -> wire[i]!DATA, a, 0; a++
       :: else -> break
       od;
       a = 0;
#endif
#ifndef MUTANT_FORGET_CONTROL
       if
       :: state[i] == ASKED -> wire[i]!ASK, asked[i], sent[i]
       :: state[i] == NONE && asked[i] > 0 -> wire[i]!RETURN, asked[i], sent[i]
       :: else
       fi
#else
       skip
#endif
     }
  od
}

/* The device: executes the next request. */
proctype Device(byte i) {
  byte a, b; mtype what;
end:
  do
  :: atomic { len(data_cq[i]) < 8 && len(control_cq[i]) < 6 && len(wire[i]) > 0 ->
       wire[i]?what, a, b;
       if
       :: what == DATA ->
            claimed++;
            if
            :: a < came[i] -> copies++
            :: else -> came[i] = a + 1
            fi;
            assert(claimed - copies <= BUFFERS);
            data_cq[i]!a
       :: else -> control_cq[i]!what, a, b
       fi;
       what = DATA; a = 0; b = 0 }
#ifdef SILENT
  :: atomic { silent < 1 && (wire[i]?[ASK, _, _] || wire[i]?[RETURN, _, _]) -> wire[i]?_, _, _; silent++ }
#endif
  od
}

inline Leave(i) { /* the line of those that wait */
  if
  :: first == i -> first = second; second = 255
  :: second == i -> second = 255
  :: else
  fi
}
inline Enter(i) {
  if
  :: first == i || second == i
  :: else ->
       if
       :: first == 255 -> first = i
       :: else -> second = i
       fi
  fi
}
inline Settle(i) { /* the window is free when what was sent under it has been taken */
  if
#ifdef MUTANT_FREE_AT_ONCE
  :: returning[i] ->
#else
  :: returning[i] && taken[i] >= until[i] ->
#endif
       returning[i] = false; recalling[i] = false; held[i] = 0
  :: else
  fi
}

proctype Receiver() {
  byte a, b, i; mtype what;
end:
  do
  :: atomic { (len(data_cq[0]) > 0 || len(data_cq[1]) > 0) ->
       if
       :: len(data_cq[0]) > 0 -> i = 0
       :: len(data_cq[1]) > 0 -> i = 1
       fi;
       data_cq[i]?a;
       claimed--;
       if
       :: a == taken[i] -> taken[i]++
       :: else -> assert(a < taken[i]); copies--; told[i] = 0 /* a copy: says again how far it is */
       fi;
       Settle(i);
       a = 0; i = 0 }
  :: atomic { (len(control_cq[0]) > 0 || len(control_cq[1]) > 0) ->
       if
       :: len(control_cq[0]) > 0 -> i = 0
       :: len(control_cq[1]) > 0 -> i = 1
       fi;
       control_cq[i]?what, a, b;
       if
       :: what == ASK && a > number[i] ->
            /* says as well that the window before is returned, should RETURN be lost */
            if
            :: held[i] > 0 -> returning[i] = true; until[i] = b
            :: else
            fi;
            number[i] = a; waits[i] = true; Enter(i)
       :: what == ASK && a == number[i] && !waits[i] && !returning[i] && held[i] > 0 && len(back[i]) < 6 ->
            back[i]!GRANT, a, held[i], taken[i] /* once more */
       :: what == RETURN && a == number[i] && !waits[i] && held[i] > 0 -> returning[i] = true; until[i] = b
       :: else
       fi;
       Settle(i);
       told[i] = 0; /* who speaks is answered */
       what = DATA; a = 0; b = 0; i = 0 }
  /* a report: how far this side is */
  :: atomic { told[0] != taken[0] && len(back[0]) < 6 -> told[0] = taken[0]; back[0]!REPORT, 0, 0, taken[0] }
  :: atomic { told[1] != taken[1] && len(back[1]) < 6 -> told[1] = taken[1]; back[1]!REPORT, 0, 0, taken[1] }
  /* a grant, to the one that waits longest */
  :: atomic { first != 255 && FREE > 0 && held[first] == 0 && len(back[first]) < 6 ->
       i = first;
       held[i] = (FREE < WINDOW -> FREE : WINDOW);
       waits[i] = false;
       back[i]!GRANT, number[i], held[i], taken[i];
       Leave(i);
       assert(held[0] + held[1] <= BUFFERS);
       i = 0 }
  /* a recall: somebody waits and nothing is free */
#ifndef MUTANT_NO_RECALL
  :: atomic { first != 255 && FREE == 0 && held[0] > 0 && !returning[0] && !recalling[0] && len(back[0]) < 6 ->
       recalling[0] = true; back[0]!RECALL, number[0], 0, taken[0] }
  :: atomic { first != 255 && FREE == 0 && held[1] > 0 && !returning[1] && !recalling[1] && len(back[1]) < 6 ->
       recalling[1] = true; back[1]!RECALL, number[1], 0, taken[1] }
#endif
#ifdef SILENT
  :: atomic { timeout && RECALLS_AGAIN(0) -> recalled_again[0]++; back[0]!RECALL, number[0], 0, taken[0] }
  :: atomic { timeout && RECALLS_AGAIN(1) -> recalled_again[1]++; back[1]!RECALL, number[1], 0, taken[1] }
#endif
  /* the stream of the receiver to a peer breaks */
  :: atomic { errors < ERRORS && (len(back[0]) > 0 || len(back[1]) > 0) ->
       errors++;
       if
       :: len(back[0]) > 0 -> i = 0
       :: len(back[1]) > 0 -> i = 1
       fi;
       do
       :: len(back[i]) > 0 -> back[i]?_, _, _, _
       :: else -> break
       od;
       told[i] = 0;
#ifndef MUTANT_FORGET_GRANT
       if
       :: held[i] > 0 && !returning[i] -> back[i]!GRANT, number[i], held[i], taken[i]
       :: else
       fi;
#endif
#ifndef MUTANT_FORGET_RECALL
       if
       :: held[i] > 0 && !returning[i] && recalling[i] -> back[i]!RECALL, number[i], 0, taken[i]
       :: else
       fi;
#endif
       i = 0 }
  od
}

/* Nothing moves any more. */
proctype Check() {
  timeout && ALL_SAID ->
    assert(acked[0] == MESSAGES && acked[1] == MESSAGES);
    assert(claimed == 0);
#ifndef KEEPS
    assert(held[0] + held[1] == 0)
#endif
}

init {
  atomic {
    byte i = 0;
    do
    :: i < SENDERS -> run Sender(i); run Device(i); i++
    :: else -> break
    od;
    run Receiver();
    run Check()
  }
}

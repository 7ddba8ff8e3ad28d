/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of delivery over the streams of one DCI: each message to a peer arrives in its order and once, although a
 * request that failed may have run, or may still run late, and although the receiver's acknowledgements and grants
 * travel slowly and more than once. Two peers, one stream each. Stream 0 can fail; the DCI can die; peer 1 is healthy.
 *
 * Device     executes the requests of a stream in order; those behind a failed one are flushed; completions come in
 *            posting order over both streams; resetting a stream lets it run again; recovery of the DCI takes back
 *            what is posted, not what is in the CQ.
 * Sender     posts within window and grant; keeps a message in its slot until it is acknowledged and its request is
 *            complete; resets a stream when all its requests are complete; then goes back to the first message that
 *            is not acknowledged.
 * Receiver   takes what comes next, drops what it has had; says how far it is, and what may be sent: both cumulative.
 *
 * Checked, by the names of the design's invariants, which stand in each assertion:
 *   delivery                  no message is missing, doubled or out of order; at the end (no step left) all are delivered
 *   isolation                 the healthy stream is never reset, nor has it an error, unless the whole DCI dies
 *   attribution               a completion never speaks for a later use of its slot
 *   reset_only_when_flushed   nothing of a stream is in the send queue when it is reset
 *   credits                   without an error nobody finds the receive queue empty
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#define PEERS 2
#ifndef MESSAGES
#define MESSAGES 3 /* to peer 0; one less to peer 1 */
#endif
#define TO(p) (MESSAGES - p)
#define WINDOW 2 /* slots of each peer: message s stands in slot s % WINDOW */
#ifndef BUFFERS
#define BUFFERS 1 /* fewer than the window, so that grants count */
#endif
#define DEPTH 4 /* of the send queue: what both windows can post */
#ifndef ERRORS
#define ERRORS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

/* Names for assertions, and nothing else. */
hidden byte delivery = 1, isolation = 1, attribution = 1, reset_only_when_flushed = 1, credits = 1;

mtype = { pending, good, failed, flushed };

/* The device: the send queue, in posting order. */
byte queue_peer[DEPTH], queue_seq[DEPTH], queue_generation[DEPTH];
mtype queue_status[DEPTH];
byte head, count;
bool stream_failed[PEERS], dead;
byte errors = ERRORS, deaths = DEATHS;
byte late = 255; /* a message of peer 0 that is still on its way although its request has failed */

chan cq = [DEPTH] of { byte, byte, byte, mtype }; /* peer, slot, generation, status */
chan arrived[PEERS] = [BUFFERS] of { byte };

/* The receiver: the next message it expects. */
byte expected[PEERS];

/* The sender. */
byte next[PEERS], acknowledged[PEERS], granted[PEERS] = BUFFERS;
byte posted[PEERS];
bool seen_error[PEERS];
byte generation[4];  /* of slot peer * WINDOW + s % WINDOW: its uses */
bool complete[4] = true; /* its request is */
#define SLOT(p, s) (p * WINDOW + (s % WINDOW))
#define QUIET (errors == ERRORS && deaths == DEATHS)

/* Whether request i of the queue is the oldest of its stream that waits. */
#define AT(i) ((head + i) % DEPTH)
inline Oldest(p, i) {
  i = 0;
  do
  :: i < count && !(queue_peer[AT(i)] == p && queue_status[AT(i)] == pending) -> i++
  :: else -> break
  od
}

inline Land(p, s) {
  assert(credits && (errors != ERRORS || deaths != DEATHS || nfull(arrived[p]))); /* RNR, and nothing had gone wrong */
  arrived[p]!s
}

active [PEERS] proctype Stream() {
  byte p = _pid, i;
  do
  :: atomic {
       !dead && count > 0 -> Oldest(p, i);
       if
       :: i == count
       :: i < count && stream_failed[p] -> queue_status[AT(i)] = flushed
       :: i < count && !stream_failed[p] && (nfull(arrived[p]) || QUIET) ->
         if
         :: true -> Land(p, queue_seq[AT(i)]); queue_status[AT(i)] = good
         :: p == 0 && errors > 0 -> /* it did not run, it did, or it is still on its way */
           errors--;
           if
           :: true
           :: nfull(arrived[p]) -> arrived[p]!queue_seq[AT(i)]
           :: late == 255 -> late = queue_seq[AT(i)]
           fi;
           stream_failed[p] = true;
           queue_status[AT(i)] = failed
         fi
       :: i < count && !stream_failed[p] && full(arrived[p]) && !QUIET
       fi;
       i = 0
     }
  :: atomic { p == 0 && late != 255 && nfull(arrived[0]) -> arrived[0]!late; late = 255 }
  :: atomic { p == 0 && deaths > 0 && !dead && count > 0 -> deaths--; dead = true }
  :: atomic {
       count > 0 && queue_status[head] != pending && nfull(cq) ->
       cq!queue_peer[head], SLOT(queue_peer[head], queue_seq[head]), queue_generation[head], queue_status[head];
       head = (head + 1) % DEPTH;
       count--
     }
  od
}

active [PEERS] proctype Receiver() {
  byte p = _pid - PEERS, s;
end:
  do
  :: atomic {
       arrived[p]?s ->
       assert(delivery && s <= expected[p]); /* else one is missing */
#ifdef MUTANT_NO_DUPLICATE_CHECK
       assert(delivery && s == expected[p]);
#endif
       if
       :: s == expected[p] -> expected[p]++
       :: else
       fi;
       s = 0
     }
  :: atomic { acknowledged[p] != expected[p] -> acknowledged[p] = expected[p] }
#ifdef MUTANT_GRANT_COUNTED_TWICE
  :: atomic { granted[p] < TO(p) && expected[p] > 0 -> granted[p] = granted[p] + 1 }
#else
  :: atomic { granted[p] != expected[p] + BUFFERS -> granted[p] = expected[p] + BUFFERS }
#endif
  od
}

/* After a reset of the stream, or the DCI's recovery. */
inline GoBack(p) {
#ifndef MUTANT_SEQUENCE_NOT_RESTORED
  next[p] = acknowledged[p];
#endif
  seen_error[p] = false
}

/* What the device finds. */
inline Reset(p) {
  assert(isolation && stream_failed[p]);
  slot = 0;
  do
  :: slot < count -> assert(reset_only_when_flushed && queue_peer[AT(slot)] != p); slot++
  :: else -> break
  od;
  slot = 0;
  stream_failed[p] = false;
  GoBack(p)
}

inline Post(p) {
  complete[SLOT(p, next[p])] = false;
  generation[SLOT(p, next[p])]++;
  queue_peer[AT(count)] = p;
  queue_seq[AT(count)] = next[p];
  queue_generation[AT(count)] = generation[SLOT(p, next[p])];
  queue_status[AT(count)] = pending;
  count++;
  posted[p]++;
  next[p]++
}

#ifdef MUTANT_SLOT_FREED_BY_ITS_ACKNOWLEDGEMENT
#define FREE(p) true
#else
#define FREE(p) complete[SLOT(p, next[p])]
#endif

active proctype Sender() {
  byte p, slot, uses;
  mtype status;
end:
  do
  /* Post. Acknowledgements may have gone past what is being sent again. */
  :: atomic {
       (next[0] < acknowledged[0]) -> next[0] = acknowledged[0]
     }
  :: atomic {
       !dead && count < DEPTH && !seen_error[0] && next[0] >= acknowledged[0] && next[0] < TO(0) &&
           next[0] < acknowledged[0] + WINDOW && next[0] < granted[0] && FREE(0) ->
       Post(0)
     }
  :: atomic { (next[1] < acknowledged[1]) -> next[1] = acknowledged[1] }
  :: atomic {
       !dead && count < DEPTH && !seen_error[1] && next[1] >= acknowledged[1] && next[1] < TO(1) &&
           next[1] < acknowledged[1] + WINDOW && next[1] < granted[1] && FREE(1) ->
       Post(1)
     }
  /* A completion. */
  :: atomic {
       cq?p, slot, uses, status ->
       if
#ifndef MUTANT_LATE_COMPLETION_ACCEPTED
       :: generation[slot] != uses || complete[slot] /* of before the recovery */
       :: else ->
#else
       :: true ->
#endif
         assert(attribution && generation[slot] == uses);
         complete[slot] = true;
         posted[p]--;
         if
         :: status != good ->
           assert(isolation && (p == 0 || deaths != DEATHS));
           seen_error[p] = true
         :: else
         fi
       fi;
       p = 0; slot = 0; uses = 0; status = 0
     }
  /* The stream's requests are all complete: it is reset. */
#ifdef MUTANT_RESET_BEFORE_FLUSHED
  :: atomic { !dead && seen_error[0] -> Reset(0) }
#else
  :: atomic { !dead && seen_error[0] && posted[0] == 0 -> Reset(0) }
#endif
#ifdef MUTANT_NEIGHBOUR_RESET
  :: atomic { !dead && seen_error[0] && posted[1] == 0 -> Reset(1) }
#else
  :: atomic { !dead && seen_error[1] && posted[1] == 0 -> Reset(1) }
#endif
  /* The DCI is dead: taken through RESET. Its completions stay in the CQ, whatever was posted may have run. */
  :: atomic {
       dead ->
       count = 0; head = 0;
       stream_failed[0] = false; stream_failed[1] = false;
       posted[0] = 0; posted[1] = 0;
       complete[0] = true; complete[1] = true; complete[2] = true; complete[3] = true;
       GoBack(0);
       GoBack(1);
       dead = false
     }
  od
}

/* Nothing can move any more: all has been delivered. */
active proctype End() {
  atomic {
    timeout ->
    assert(delivery && expected[0] == TO(0) && expected[1] == TO(1))
  }
}

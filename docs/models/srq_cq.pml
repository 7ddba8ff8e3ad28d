/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of the SRQ and CQ in shared memory (transport/softdc/shm): posters in processes of their own, the owner's
 * polling thread, the owner's firmware thread that repairs after deaths, and a killer that stops posters
 * between any two of their steps. Each access to shared memory is a step of its own. Memory is sequentially
 * consistent here; which orders the code needs for that is argued in the decision page.
 *
 * Checked: a message is delivered once, whole, in its sender's order; no WQE is in two hands; and when nothing
 * can move any more, every living poster has sent everything, everything published was delivered, the owner
 * sleeps only if there is nothing to poll, and every WQE is posted and free.
 *
 * Run: docs/models/check.sh (all of it), or
 *   spin -a srq_cq.pml && gcc -O2 -DSAFETY -DNOREDUCE -o pan pan.c && ./pan -E -m1000000
 * (-E: the killed stay where they are; the Monitor judges the final state instead. NOREDUCE: `provided` and
 * partial order reduction do not go together.)
 *
 * Dials: -DPOSTERS -DMESSAGES -DFIRST_MESSAGES -DBATCH -DDEATHS -DSLOTS. Each -DMUTANT_... breaks one rule of the protocol, and must fail.
 */
#ifndef POSTERS
#define POSTERS 2
#endif
#ifndef MESSAGES
#define MESSAGES 2 /* of each poster */
#endif
#ifndef FIRST_MESSAGES
#define FIRST_MESSAGES MESSAGES /* poster 0, the first to die */
#endif
#define TO_SEND (p == 0 -> FIRST_MESSAGES : MESSAGES)
#ifndef BATCH
#define BATCH 2 /* WQEs per claim, at most */
#endif
#ifndef DEATHS
#define DEATHS 1 /* posters 0 .. DEATHS-1 may die */
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define RING 2
#define NONE 255
#define ANY 1
#define TAKEN_BY_OWNER 2
#define TAKEN_BY(p) (3 + (p))
#define BODY(p, number) (16 * (p) + (number) + 1)

typedef Ring {
  byte wqe[RING];
  byte number[RING];
  byte stamp[RING];
  byte consumed
};

/* Shared. */
byte posted, claim;
byte slot[SLOTS];
byte intent_head[POSTERS], intent_count[POSTERS];
Ring ring[POSTERS];
byte front[SLOTS], back[SLOTS]; /* the two halves of each buffer */
byte armed;
bool bell;
bool dead[POSTERS];

/* The owner's own, under its lock. */
bool locked;
byte ticket[SLOTS]; /* NONE: the WQE is free */
byte position[POSTERS];
bool repaired[POSTERS];

/* Only for the checks. */
byte published[POSTERS];
bool finished[POSTERS];

#define UNREAD(p) (ring[p].stamp[position[p] % RING] == position[p] + 1)
#define COVERS(head, count, t) ((count) != 0 && (t) >= (head) && (t) < (head) + (count))

/* Steps: an `atomic` below has one access to memory that others use at that time; the rest of it is private. */

proctype Poster(byte p) provided (!dead[p]) {
  byte head, count, i, number;
  byte wqe[BATCH];
  bool yes;

  do
  :: number == TO_SEND -> break
  :: else ->
    /* CanPublish, and the RNR timer: a poster that finds nothing waits for a WQE. */
    atomic {
      (number + BATCH <= ring[p].consumed + RING && posted > claim);
      head = claim
    };
retry:
    atomic {
      count = (posted > head -> posted - head : 0);
      count = (count > BATCH -> BATCH : count);
      count = (count > TO_SEND - number -> TO_SEND - number : count);
      i = 0
    };
    if
    :: count == 0 ->
#ifndef MUTANT_KEEP_INTENT
      atomic { intent_count[p] = 0; intent_head[p] = 0 };
#endif
      goto again
    :: else
    fi;
#ifndef MUTANT_SLOTS_AFTER_CAS
    do
    :: atomic { i < count -> wqe[i] = slot[(head + i) % SLOTS]; i++ }
    :: atomic { i == count -> i = 0; break }
    od;
#endif
#ifndef MUTANT_INTENT_AFTER_CAS
    atomic { intent_head[p] = head; intent_count[p] = count };
#endif
    atomic {
      yes = (claim == head);
      if
      :: yes -> claim = head + count
      :: else -> head = claim
      fi
    };
    if
    :: !yes -> goto retry
    :: else
    fi;
#ifdef MUTANT_INTENT_AFTER_CAS
    atomic { intent_head[p] = head; intent_count[p] = count };
#endif
#ifdef MUTANT_SLOTS_AFTER_CAS
    do
    :: atomic { i < count -> wqe[i] = slot[(head + i) % SLOTS]; i++ }
    :: atomic { i == count -> i = 0; break }
    od;
#endif
    do
    :: i < count ->
      front[wqe[i]] = BODY(p, number);
      back[wqe[i]] = BODY(p, number);
#ifdef MUTANT_STAMP_FIRST
      atomic { published[p]++; ring[p].stamp[number % RING] = published[p] };
      atomic { ring[p].wqe[number % RING] = wqe[i]; ring[p].number[number % RING] = number };
      atomic { wqe[i] = 0; number++; i++ }
#else
      atomic { ring[p].wqe[number % RING] = wqe[i]; ring[p].number[number % RING] = number };
#ifdef MUTANT_LOOK_BEFORE_PUBLISH
      yes = (armed == ANY); /* what a CPU does without the full fence */
#endif
      atomic {
        published[p]++;
        ring[p].stamp[number % RING] = published[p];
        wqe[i] = 0; number++; i++
      }
#endif
    :: atomic { i == count -> i = 0; count = 0; head = 0; break }
    od;
#ifndef MUTANT_LOOK_BEFORE_PUBLISH
    yes = (armed == ANY);
#endif
    if
    :: yes ->
      atomic {
        yes = (armed == ANY);
        if
        :: yes -> armed = TAKEN_BY(p)
        :: else
        fi
      };
      if
      :: atomic { yes -> bell = true; yes = false }
      :: else
      fi
    :: else
    fi;
again:
    skip
  od;
  finished[p] = true
}

/* The owner's polling thread. */
proctype Owner() {
  byte p, w;

  do
  :: atomic {
       !locked && UNREAD(p) ->
       locked = true;
       w = ring[p].wqe[position[p] % RING];
       assert(ticket[w] != NONE);                         /* outstanding, so not delivered before */
       assert(ticket[w] < claim);
       assert(ring[p].number[position[p] % RING] == position[p]); /* in order, none missing */
       assert(front[w] == BODY(p, position[p]));          /* whole, and nobody else's */
       assert(back[w] == BODY(p, position[p]));
       position[p]++;
       ring[p].consumed = position[p]
     };
     /* Post again: the slot, then `posted`. */
     atomic { slot[posted % SLOTS] = w; ticket[w] = posted; w = 0 };
     atomic { posted++; locked = false }
  :: atomic { !locked && !UNREAD(p) && p < POSTERS - 1 -> p++ }
  :: atomic { !locked && !UNREAD(p) && p == POSTERS - 1 -> p = 0 };
#ifdef MUTANT_NO_LOOK_AFTER_ARMING
     atomic { armed == 0 -> armed = ANY };
#else
     if
     :: atomic { armed == 0 -> armed = ANY }
     :: atomic { armed != 0 }
     fi;
     do
     :: atomic { p < POSTERS && !UNREAD(p) -> p++ }
     :: atomic { p == POSTERS -> p = 0; break }
     :: atomic { /* a completion after all: takes the word itself, and need not ring, being awake */
          p < POSTERS && UNREAD(p) ->
          p = 0;
          if
          :: armed == ANY -> armed = 0
          :: else
          fi;
          goto awake
        }
     od;
#endif
     atomic { bell -> bell = false };
     atomic {
       if
       :: armed >= TAKEN_BY_OWNER -> armed = 0
       :: else
       fi
     };
awake:
     skip
  od
}

#define MOVED(p) (count[p] != 0 && (dead[p] || head[p] != intent_head[p] || count[p] != intent_count[p]))
#define POLLED (position[0] + position[1] + (POSTERS > 2 -> position[POSTERS - 1] : 0))

/* The owner's firmware thread: a poster dies, at any time; the thread gives the wake-up that the dead one may
 * owe, then repairs until nothing is in doubt. */
proctype Firmware(byte d) {
  byte p, w, k, deferred, seen, polled;
  byte head[POSTERS], count[POSTERS];
  bool found[SLOTS];

  dead[d] = true;
#ifndef MUTANT_NO_BELL_FOR_THE_DEAD
  atomic { !locked -> locked = true };
  if
  :: atomic { armed == TAKEN_BY(d) -> bell = true }
  :: atomic { armed == ANY && UNREAD(d) -> armed = TAKEN_BY_OWNER };
     bell = true
  :: atomic { armed != TAKEN_BY(d) && !(armed == ANY && UNREAD(d)) }
  fi;
  locked = false;
#endif

  do
  :: atomic { !locked -> locked = true; seen = claim };
#ifdef MUTANT_DECIDE_BEFORE_INTENTS
     goto rings; /* and the journals after them */
journals:
#endif
     do
     :: atomic {
          p < POSTERS ->
          if
          :: p != d && !dead[p] -> head[p] = intent_head[p]; count[p] = intent_count[p]
          :: else
          fi;
          p++
        }
     :: atomic { p == POSTERS -> p = 0; break }
     od;
#ifdef MUTANT_DECIDE_BEFORE_INTENTS
     goto decide;
rings:
#endif
     do
     :: atomic {
          p < POSTERS ->
          for (k : 0 .. RING - 1) {
            if
            :: ring[p].stamp[(position[p] + k) % RING] == position[p] + k + 1 ->
              found[ring[p].wqe[(position[p] + k) % RING]] = true
            :: else
            fi
          };
          p++; k = 0
        }
     :: atomic { p == POSTERS -> p = 0; break }
     od;
#ifdef MUTANT_DECIDE_BEFORE_INTENTS
     goto journals;
decide:
#endif
     atomic {
       deferred = 0;
       for (w : 0 .. SLOTS - 1) {
         if
         :: ticket[w] != NONE && ticket[w] < seen &&
#ifndef MUTANT_IGNORE_RINGS
            !found[w] &&
#endif
            COVERS(intent_head[d], intent_count[d], ticket[w]) ->
           k = 0;
#ifndef MUTANT_IGNORE_INTENTS
           for (p : 0 .. POSTERS - 1) {
             if
             :: COVERS(head[p], count[p], ticket[w]) -> k = 1
             :: else
             fi
           };
#endif
           if
           :: k == 1 -> deferred++
           :: else -> slot[posted % SLOTS] = w; ticket[w] = posted; posted++
           fi
         :: else
         fi
       };
       for (w : 0 .. SLOTS - 1) { found[w] = false };
       w = 0; p = 0; k = 0; seen = 0;
       polled = (deferred == 0 -> 0 : POLLED);
       locked = false
     };
     if
     :: deferred == 0 -> break
     :: else -> /* when a journal moved, a poster died or a CQE was polled; the code uses a timer */
        atomic {
          (MOVED(0) || MOVED(1) || MOVED(POSTERS - 1) || polled != POLLED);
          for (k : 0 .. POSTERS - 1) { head[k] = 0; count[k] = 0 };
          k = 0; polled = 0; deferred = 0
        }
     fi
  od;
  atomic {
    for (k : 0 .. POSTERS - 1) { head[k] = 0; count[k] = 0 };
    k = 0; repaired[d] = true
  }
}

proctype Monitor() {
  byte p, w;
  timeout ->
  for (p : 0 .. POSTERS - 1) {
    assert(dead[p] || finished[p]);             /* nobody waits for ever */
    assert(!UNREAD(p));                         /* nobody sleeps over a message */
    assert(position[p] == published[p]);        /* nothing published is lost */
    assert(p >= DEATHS || repaired[p])
  };
  assert(!locked);
  assert(posted - claim == SLOTS);              /* no WQE is lost */
  for (w : 0 .. SLOTS - 1) { assert(ticket[w] != NONE && ticket[w] >= claim) }
}

init {
  byte i;
  atomic {
    for (i : 0 .. SLOTS - 1) { ticket[i] = i; slot[i] = i };
    posted = SLOTS;
    for (i : 0 .. POSTERS - 1) { run Poster(i) };
    for (i : 0 .. DEATHS - 1) { run Firmware(i) };
    run Owner();
    run Monitor()
  }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of what the end of a queue pair does to a CQ with a ring per sender (transport/softdc/model/cq.cc, PurgeReceives
 * and ForgetSrq; transport/softdc/shm/cqe_ring.h, DropUnread; transport/softdc/shm/repair.cc): two senders publish
 * completions of two queue pairs; the owner polls, and ends one of the queue pairs at some time; a sender may die between any
 * two of its steps, and the owner's firmware thread then posts again what the dead one had claimed and not published. What
 * is dropped leaves its room to the sender: the others in the ring close up first. How a WQE is claimed is one step here:
 * srq_cq.pml has it in its parts.
 *
 * Checked: what is polled is a WQE that nobody else has, with its message, of a queue pair that lives; and when nothing can
 * move any more, every living sender has sent everything, everything was polled or dropped, and every WQE is posted and free.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#define SENDERS 2 /* sender 0 may die */
#define MESSAGES 3 /* of each sender; the odd ones are for queue pair 1, which ends */
#define SLOTS 2
#define RING 2
#define NONE 255
#define BODY(p, number) (16 * (p) + (number) + 1)

typedef Ring {
  byte wqe[RING]; /* NONE: dropped */
  byte number[RING];
  byte stamped;
  byte consumed /* as the sender is told */
};

/* Shared. */
byte posted, claim;
byte slot[SLOTS];
byte intent[SENDERS]; /* ticket + 1; 0: none */
bool copying[SENDERS]; /* to queue pair 1 */
Ring ring[SENDERS];
byte body[SLOTS];
bool closed, dead[SENDERS];

/* The owner's own, under its lock. */
bool locked;
byte ticket[SLOTS];
byte position[SENDERS];
byte parked[4], parked_count; /* of the mutant: sender and number of a completion taken out of its ring */
byte parked_wqe[4];

/* Only for the checks. */
bool finished[SENDERS], repaired, purged;

#define UNREAD(p) (position[p] < ring[p].stamped)
#define UNREAD_WQE(p, k) (position[p] + (k) < ring[p].stamped -> ring[p].wqe[(position[p] + (k)) % RING] : NONE)

/* Of the two entries of a ring. */
#define AT(k) (position[p] + (k)) % RING
#define CLOSE_UP(p) \
  if \
  :: UNREAD_WQE(p, 1) == NONE && position[p] + 1 < ring[p].stamped && UNREAD_WQE(p, 0) != NONE -> \
     ring[p].wqe[AT(1)] = ring[p].wqe[AT(0)]; \
     ring[p].number[AT(1)] = ring[p].number[AT(0)]; \
     ring[p].wqe[AT(0)] = NONE \
  :: else \
  fi; \
  do \
  :: UNREAD(p) && ring[p].wqe[AT(0)] == NONE -> position[p]++ \
  :: else -> break \
  od; \
  ring[p].consumed = position[p]
/* The mutant's: what CLOSE_UP will free. */
#define TELL(p) \
  ring[p].consumed = position[p] + (UNREAD(p) && UNREAD_WQE(p, 0) == NONE -> 1 : 0) + \
                     (position[p] + 1 < ring[p].stamped && UNREAD_WQE(p, 1) == NONE -> 1 : 0)

#define POST(w) slot[posted % SLOTS] = w; ticket[w] = posted; posted++

/* Polled: the WQE is outstanding, and no sender is offered it; the program posts it again. */
#define COMPLETE(w, p, n) \
  assert(w != NONE); \
  assert(ticket[w] < claim); \
  assert(body[w] == BODY(p, n)); \
  assert(!purged || (n) % 2 == 0); \
  POST(w)

proctype Sender(byte p) provided (!dead[p]) {
  byte number, w;
  do
  :: number == MESSAGES -> break
  :: else ->
    if
    :: atomic { closed && number % 2 == 1 -> number++ }
    :: atomic {
         !(closed && number % 2 == 1) && posted > claim && ring[p].stamped - ring[p].consumed < RING ->
         copying[p] = (number % 2 == 1);
         intent[p] = claim + 1;
         w = slot[claim % SLOTS];
         claim++
       };
       body[w] = BODY(p, number);
       atomic {
         ring[p].wqe[ring[p].stamped % RING] = w;
         ring[p].number[ring[p].stamped % RING] = number;
         ring[p].stamped++;
         w = 0
       };
       atomic { copying[p] = false; number++ }
    fi
  od;
  finished[p] = true
}

proctype Owner() {
  byte p, k, w;
  do
  :: atomic {
       !locked && UNREAD(p) ->
       w = ring[p].wqe[position[p] % RING];
       k = ring[p].number[position[p] % RING];
       position[p]++;
       ring[p].consumed = position[p];
       COMPLETE(w, p, k);
       w = 0; k = 0
     }
  :: atomic {
       !locked && parked_count > 0 ->
       parked_count--;
       w = parked_wqe[parked_count];
       COMPLETE(w, (parked[parked_count] / 16), (parked[parked_count] % 16));
       w = 0
     }
  :: atomic { !UNREAD(p) && UNREAD(1 - p) -> p = 1 - p }
  :: atomic {
       !closed -> closed = true;
       p = 0
     };
#ifndef MUTANT_PURGE_BEFORE_COPIES
     (!copying[0] || dead[0]);
     (!copying[1]);
#endif
     atomic { !locked -> locked = true };
     do
     :: atomic {
          p < SENDERS ->
          for (k : 0 .. RING - 1) {
            w = UNREAD_WQE(p, k);
            if
            :: w != NONE && ring[p].number[(position[p] + k) % RING] % 2 == 1 ->
#ifndef MUTANT_DROP_ONLY
               POST(w);
#endif
               ring[p].wqe[(position[p] + k) % RING] = NONE
#ifdef MUTANT_PARK
            :: w != NONE && ring[p].number[(position[p] + k) % RING] % 2 == 0 ->
               parked[parked_count] = 16 * p + ring[p].number[(position[p] + k) % RING];
               parked_wqe[parked_count] = w;
               parked_count++;
               ring[p].wqe[(position[p] + k) % RING] = NONE
#endif
            :: else
            fi
          };
#ifdef MUTANT_TELL_BEFORE_CLOSING_UP
          TELL(p)
        };
        atomic {
#endif
          CLOSE_UP(p);
          k = 0; w = 0; p++
        }
     :: atomic { p == SENDERS -> p = 0; purged = true; locked = false; break }
     od
  od
}

/* The owner's firmware thread, when sender 0 has died. */
proctype Firmware() {
  byte p, k, w, seen;
  bool found[SLOTS];
  dead[0] = true;
  atomic { !locked -> locked = true; seen = claim };
#ifndef MUTANT_IGNORE_RINGS
  do
  :: atomic {
       p < SENDERS ->
       for (k : 0 .. RING - 1) {
         w = UNREAD_WQE(p, k);
         if
         :: w != NONE -> found[w] = true
         :: else
         fi
       };
       p++
     }
  :: atomic { p == SENDERS -> p = 0; k = 0; w = 0; break }
  od;
#endif
  atomic {
    for (w : 0 .. SLOTS - 1) {
      if
      :: ticket[w] < seen && !found[w] && intent[0] == ticket[w] + 1 -> POST(w)
      :: else
      fi
    };
    w = 0; repaired = true; locked = false
  }
}

proctype Monitor() {
  byte w;
  timeout ->
  assert(finished[1] && repaired && !locked);
  assert(!UNREAD(0) && !UNREAD(1) && parked_count == 0);
  assert(posted - claim == SLOTS); /* no WQE is lost */
  for (w : 0 .. SLOTS - 1) { assert(ticket[w] >= claim) }
}

init {
  byte i;
  atomic {
    for (i : 0 .. SLOTS - 1) { ticket[i] = i; slot[i] = i };
    posted = SLOTS;
    run Sender(0); run Sender(1); run Owner(); run Firmware(); run Monitor()
  }
}

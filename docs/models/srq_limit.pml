/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of the limit of an SRQ in shared memory (transport/softdc/shm/srq_area.h, TakeLimit): senders in processes
 * of their own claim WQEs and look whether too few are left, the owner arms the limit, once and once more after its
 * event, posts WQEs, and cleans up after a sender that dies between any two of its steps. Each access to shared
 * memory is a step of its own; memory is sequentially consistent, as the seq_cst order of these words is.
 *
 * Checked: each arming gives at most one event, never while as many WQEs are left as the limit says; and when
 * nothing can move any more no arming is unanswered although fewer are left.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#define SENDERS 2
#define CLAIMS 2 /* of each sender */
#define POSTED 4
#define LIMIT 3
#define ARMINGS 2
#define REACHED 255
#define LEFT (posted - claim)

/* Shared. */
byte posted = POSTED, claim;
byte limit; /* 0: not armed */
byte bell;  /* notices that the owner's firmware has been sent */
bool dead[SENDERS];

/* Only for the checks and the repair. */
byte unpublished; /* WQEs that sender 0 has claimed and not published */
byte armed, events;
bool finished[SENDERS], buried;

/* What whoever has moved `claim` to `mine`, or has armed the limit, does. */
inline TakeLimit(mine, seen, took) {
  atomic { seen = limit; seen = (seen == REACHED -> 0 : seen); took = false };
  if
  :: atomic { seen != 0 -> took = (posted - mine < LIMIT) }
  :: atomic { seen == 0 }
  fi;
  if
#ifdef MUTANT_STORE_REACHED
  :: atomic { took -> limit = REACHED }
#else
  :: atomic {
       took ->
       if
       :: limit == seen -> limit = REACHED
       :: else -> took = false
       fi
     }
#endif
  :: atomic { !took -> seen = 0 }
  fi;
  seen = 0
}

/* The owner's side, by its own threads or its firmware's: true once for each time that it was reached. */
inline Collect() {
  atomic {
    if
    :: limit == REACHED ->
      limit = 0;
      events++;
      assert(events <= armed);
      assert(LEFT < LIMIT || dead[0])
    :: else
    fi
  }
}

proctype Sender(byte p) provided (!dead[p]) {
  byte n, mine, seen;
  bool took;
  do
  :: n == CLAIMS -> break
  :: atomic { n < CLAIMS && LEFT > 0 -> claim++; mine = claim; n++; unpublished = (p == 0 -> 1 : unpublished) };
#ifndef MUTANT_NO_LOOK_AFTER_CLAIM
    TakeLimit(mine, seen, took);
#endif
    /* Publishing and ringing come later than the claim. */
    atomic { unpublished = (p == 0 -> 0 : unpublished); mine = 0 };
    if
    :: atomic { took -> bell++; took = false }
    :: atomic { !took }
    fi
  od;
  finished[p] = true
}

proctype Owner() {
  byte seen, n;
  bool took;
  do
  :: n == ARMINGS -> break
  :: n < ARMINGS ->
    atomic { (n == events && limit == 0) -> armed++; n++; limit = LIMIT };
#ifndef MUTANT_NO_LOOK_AFTER_ARMING
    TakeLimit(claim, seen, took);
    if
    :: took -> Collect()
    :: else
    fi
#endif
  od
}

/* The owner's firmware thread: what it is told, and the death of sender 0. */
proctype Firmware() {
end:
  do
  :: atomic { bell > 0 -> bell-- }; Collect()
  od
}

proctype Undertaker() {
  byte seen;
  bool took;
  dead[0] = true;
#ifndef MUTANT_FORGET_THE_DEAD
  Collect(); /* what it had found out and not told */
#endif
  /* What it had claimed and not published is posted again. */
  atomic { posted = posted + unpublished; unpublished = 0 };
#ifndef MUTANT_NO_LOOK_AFTER_REPAIR
  /* The newest claim may have been the dead one's: whoever looked before sees more left than there is. */
  TakeLimit(claim, seen, took);
  if
  :: took -> Collect()
  :: else
  fi;
#endif
  buried = true
}

proctype Monitor() {
  timeout ->
  assert(dead[0] && buried);
  assert(limit != REACHED);                /* nobody keeps an event to himself */
  assert(limit == 0 || LEFT >= LIMIT)      /* nobody overlooks that it is reached */
}

init {
  atomic {
    run Sender(0); run Sender(1);
    run Owner(); run Firmware(); run Undertaker(); run Monitor()
  }
}

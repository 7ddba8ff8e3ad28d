/* SPDX-License-Identifier: Apache-2.0
 *
 * Model of the counter by which deregistration waits for the copies of others (transport/softdc/shm/claim_journal.h,
 * BeginCopies; transport/softdc/fabric_shm/inbound_links.cc, WaitForCopies): a sender in a process of its own raises
 * its counter, looks at the key, copies, and raises the counter again; the owner takes the key back and waits for
 * counters that are odd until they move or their process has ended. The sender may die between any two of its steps.
 * Sequentially consistent: the code has a fence of the sender's process, called for by the owner, where the sender
 * would need one.
 *
 * Checked: nothing is copied once deregistration has returned, and it does return.
 *
 * Run: docs/models/check.sh. Each -DMUTANT_... breaks one rule, and must fail.
 */
#define SENDERS 2
#define COPIES 3 /* of each sender */

/* Shared. */
bool key = true;
byte counter[SENDERS];
bool dead[SENDERS], ended; /* of sender 0; `ended` is what the owner has noticed */

/* Only for the checks. */
bool returned;
bool finished[SENDERS];

proctype Sender(byte p) provided (!dead[p]) {
  byte n;
  bool allowed;
  do
  :: n == COPIES -> break
  :: n < COPIES ->
    n++;
#ifdef MUTANT_LOOK_BEFORE_RAISING
    allowed = key;
#endif
#ifndef MUTANT_NEVER_RAISE
    counter[p] = counter[p] | 1;
#endif
#ifndef MUTANT_LOOK_BEFORE_RAISING
    allowed = key;
#endif
#ifdef MUTANT_LOWER_BEFORE_COPY
    counter[p] = counter[p] + 1;
#endif
    if
    :: allowed ->
      assert(!returned); /* the first byte */
      assert(!returned)  /* and a later one */
    :: else
    fi;
#if !defined(MUTANT_LOWER_BEFORE_COPY) && !defined(MUTANT_NEVER_RAISE)
    counter[p] = counter[p] + 1
#endif
  od;
  finished[p] = true
}

proctype Owner() {
  byte p, seen;
#ifndef MUTANT_WAIT_BEFORE_TAKING
  key = false;
#endif
  do
  :: p == SENDERS -> break
  :: p < SENDERS ->
    seen = counter[p];
    if
    :: seen % 2 == 0
#ifdef MUTANT_WAIT_FOR_THE_DEAD
    :: seen % 2 == 1 -> (counter[p] != seen)
#else
    :: seen % 2 == 1 -> (counter[p] != seen || (p == 0 && ended))
#endif
    fi;
    p++
  od;
#ifdef MUTANT_WAIT_BEFORE_TAKING
  key = false;
#endif
  returned = true
}

/* The kernel closes the sockets of a process that is no more, and nothing of it runs after that. */
proctype Undertaker() {
  dead[0] = true;
  ended = true
}

proctype Monitor() {
  timeout ->
  assert(returned);
  assert(finished[1])
}

init {
  atomic { run Sender(0); run Sender(1); run Owner(); run Undertaker(); run Monitor() }
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks the models in docs/models with Spin: the protocol as it is must hold in every configuration below, and each
# of its mutants, one broken rule each, must fail in at least one: a model that can't fail shows nothing.
#
#   srq_cq.pml        claiming a receive WQE and publishing its completion
#   cq_purge.pml      a queue pair that ends while others' completions are unread
#   srq_limit.pml     the limit of an SRQ
#   cq_overrun.pml    the overrun of a CQ
#   copy_counter.pml  deregistration, which waits for the copies of others
#   lane_sleep.pml    no sleep over a message in a lane
#   credit_windows.pml  windows that are asked for, recalled and returned (docs/decisions/0067)
#   stream_delivery.pml  resets of streams, sending again, credits: its properties are named after the design's invariants,
#                        and each of them is broken by some mutant
#
# In the first five a process may die between any two of its steps. Four minutes and 0.7 GB. `check.sh full` adds two
# deaths to the first, and two errors to the last (three minutes more).
# Needs spin and gcc: ./dev models installs them.
set -eu
models=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null || { echo "FAILED: spin is not installed: run ./dev models"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# run <defines...>: of $model; prints states and errors; sets $errors.
run() {
  spin "$@" -a "$model" >spin.log 2>&1 && ! grep -q 'Error' spin.log || { cat spin.log; exit 1; }
  gcc -O2 -DSAFETY -DNOREDUCE -DCOLLAPSE -o pan pan.c >gcc.log 2>&1 || { cat gcc.log; exit 1; }
  ./pan -E -m2000000 >pan.log
  ! grep -q 'max search depth too small' pan.log || { cat pan.log; exit 1; }
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
  case $errors in
    '' | *[!0-9]*) cat pan.log; echo "FAILED: the search ended without a result"; exit 1 ;;
  esac
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
  printf '%10s states, errors: %s   %s\n' "$states" "$errors" "$*"
}
must_hold() {
  run "$@"
  [ "$errors" = 0 ] || { cat pan.log; echo "FAILED: the protocol does not hold"; exit 1; }
  ! grep -q 'Search not completed' pan.log || { cat pan.log; echo "FAILED: not all states were seen"; exit 1; }
}

# mutants_must_fail <configuration>...: each of $model in one of them.
mutants_must_fail() {
  grep -q 'MUTANT_' "$model" || { echo "FAILED: $model has no mutants"; exit 1; }
  for mutant in $(grep -o 'ifn\{0,1\}def MUTANT_[A-Z_]*' "$model" | sed 's/.* //' | sort -u); do
    for config in "$@"; do
      # shellcheck disable=SC2086
      run "-D$mutant" $config
      [ "$errors" = 0 ] || break
    done
    [ "$errors" != 0 ] || { echo "FAILED: $mutant was not noticed"; exit 1; }
    sed -n 's/^pan:1: assertion violated/             &/p' pan.log | tee -a violated.log
  done
}

model=$models/srq_cq.pml
# One claim of one WQE overtaken by two of another poster; and claims of up to two WQEs.
overtaken="-DPOSTERS=2 -DMESSAGES=2 -DFIRST_MESSAGES=1 -DBATCH=1 -DDEATHS=1"
batched="-DPOSTERS=2 -DMESSAGES=2 -DBATCH=2 -DDEATHS=1"
# shellcheck disable=SC2086
must_hold $overtaken
# shellcheck disable=SC2086
must_hold $batched
if [ "${1:-}" = full ]; then
  must_hold -DPOSTERS=2 -DMESSAGES=1 -DBATCH=1 -DDEATHS=2
fi

mutants_must_fail "$batched" "$overtaken"

for name in cq_purge srq_limit cq_overrun copy_counter lane_sleep; do
  model=$models/$name.pml
  echo "$name:"
  must_hold
  mutants_must_fail ""
done

model=$models/credit_windows.pml
echo "credit_windows:"
must_hold
must_hold -DBUFFERS=1
must_hold -DKEEPS
must_hold -DBUFFERS=3
silent="-DSILENT -DKEEPS -DBUFFERS=1 -DERRORS=0"
# shellcheck disable=SC2086
must_hold $silent
must_hold -DSILENT -DKEEPS
mutants_must_fail "-DBUFFERS=1" "-DKEEPS" "$silent"

model=$models/stream_delivery.pml
echo "stream_delivery:"
one_error="-DERRORS=1 -DDEATHS=0 -DMESSAGES=3"
# shellcheck disable=SC2086
must_hold $one_error
# shellcheck disable=SC2086
must_hold $one_error -DBUFFERS=2
dead_too="-DERRORS=1 -DDEATHS=1 -DMESSAGES=2"
# shellcheck disable=SC2086
must_hold $dead_too
if [ "${1:-}" = full ]; then
  must_hold -DERRORS=2 -DDEATHS=0 -DMESSAGES=3
fi
rm -f violated.log
mutants_must_fail "$one_error" "$one_error -DBUFFERS=2" "$dead_too"
for property in delivery isolation attribution reset_only_when_flushed credits; do
  grep -q "$property" violated.log || { echo "FAILED: no mutant breaks $property"; exit 1; }
done
echo "PASSED: the protocols hold, every mutant fails"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks docs/models/srq_cq.pml with Spin: the protocol as it is must hold in every configuration below, and each
# of its mutants, one broken rule each, must fail in at least one: a model that can't fail shows nothing.
# About half a minute and 0.7 GB. `check.sh full` adds two deaths (a minute more).
# Needs spin and gcc; says so and does nothing when spin is not installed.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/srq_cq.pml
command -v spin >/dev/null || { echo "SKIPPED: spin is not installed (apt-get install spin)"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# run <defines...>: prints states and errors; sets $errors.
run() {
  spin "$@" -a "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
  gcc -O2 -DSAFETY -DNOREDUCE -DCOLLAPSE -o pan pan.c >gcc.log 2>&1 || { cat gcc.log; exit 1; }
  ./pan -E -m2000000 >pan.log
  ! grep -q 'max search depth too small' pan.log || { cat pan.log; exit 1; }
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.log)
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log)
  printf '%10s states, errors: %s   %s\n' "$states" "$errors" "$*"
}
must_hold() {
  run "$@"
  [ "$errors" = 0 ] || { cat pan.log; echo "FAILED: the protocol does not hold"; exit 1; }
}

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

for mutant in $(grep -o 'ifn\{0,1\}def MUTANT_[A-Z_]*' "$model" | sed 's/.* //' | sort -u); do
  for config in "$batched" "$overtaken"; do
    # shellcheck disable=SC2086
    run "-D$mutant" $config
    [ "$errors" = 0 ] || break
  done
  [ "$errors" != 0 ] || { echo "FAILED: $mutant was not noticed"; exit 1; }
  sed -n 's/^pan:1: assertion violated/             &/p' pan.log
done
echo "PASSED: the protocol holds, every mutant fails"

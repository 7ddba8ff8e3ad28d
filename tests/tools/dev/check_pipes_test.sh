#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

# with LINE...: the checker on a script of these lines, with pipefail.
with() {
  printf '%s\n' '#!/usr/bin/env bash' 'set -euo pipefail' "$@" >"$TEST_TMPDIR/script.sh"
  tools/dev/check_pipes "$TEST_TMPDIR/script.sh"
}
# flagged LINE: this line is an error.
flagged() { expect 1 'script.sh:3: the reader may leave before the writer' with "$1"; }
# fine LINE...: these are not.
fine() { expect 0 '^$' with "$@"; }

# shellcheck disable=SC2016
{
  # The writer dies of SIGPIPE if it writes after its reader has left: the cause of what is checked here.
  expect 141 '' bash -c 'set -o pipefail; yes | grep -q y'

  flagged 'ldd program | grep -q "libsluice.so.0 => $prefix/lib/" || fail'
  flagged 'if a | grep -Eq x; then'
  flagged 'a | grep -m 1 x'
  flagged 'a | grep -m1 x'
  flagged 'a | LC_ALL=C grep -l x'
  flagged 'a | grep --quiet x'
  flagged 'a | grep x >/dev/null'
  flagged 'a |& grep -q x'
  flagged 'first=$(a | sort | head -n 1)'
  flagged 'a | head'
  flagged 'a | sed 3q'
  flagged 'a | sed -n "/x/{p;q}"'
  flagged "a | awk '/x/ { print; exit }'"
  flagged 'a | read -r line'
  flagged 'a | { read -r line; echo "$line"; }'
  # A pipe that goes on in the next line, and a program of awk over several.
  expect 1 'script.sh:3: the reader' with 'a |' '  head -n 1'
  expect 1 'script.sh:3: the reader' with 'a \' '  | head -n 1'
  expect 1 'script.sh:3: the reader' with "a | awk '" '  /x/ { print' '    exit }' "  '"
  expect 1 'script.sh:4: the reader' with "a | awk '{ print }'" 'a | head'

  fine '[[ $(ldd program) == *libsluice* ]]'
  fine 'grep -q x file || grep -q y <<<"$text"' 'grep -m 5 x file | cut -c 1-80' 'head -n 1 file | tr a b'
  fine 'a | grep x' 'a | grep x 2>/dev/null' 'a | grep x | sort >/dev/null'
  fine 'a | grep x || grep -q y file'
  fine 'a | tail -n 1' 'a | sed s/q/Q/' "a | sed -n 's/^ii //p'" 'a | sort -q'
  fine "a | awk '!seen++'" "a | awk '{ bad = 1 } END { exit bad }'" "a | awk '" '  { bad = 1 }' "  END { exit bad }'"
  fine 'a | while read -r line; do echo "$line"; done'
  fine '# a | head' '  # grep -q'
}

# Without pipefail the status of the writer is not looked at; in a file that others source it is.
printf '%s\n' '#!/bin/sh' 'set -eu' 'a | grep -q x' >"$TEST_TMPDIR/plain.sh"
expect 0 '^$' tools/dev/check_pipes "$TEST_TMPDIR/plain.sh"
printf '%s\n' '# shellcheck shell=bash' 'a | grep -q x' >"$TEST_TMPDIR/sourced.sh"
expect 1 'sourced.sh:2' tools/dev/check_pipes "$TEST_TMPDIR/sourced.sh" "$TEST_TMPDIR/plain.sh"
expect 1 'sourced.sh:2' tools/dev/check_pipes "$TEST_TMPDIR/plain.sh" "$TEST_TMPDIR/sourced.sh"

expect 2 'nothing would be proved' tools/dev/check_pipes
expect 2 'cannot read' tools/dev/check_pipes "$TEST_TMPDIR/absent.sh"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

cat >"$TEST_TMPDIR/queue_test.cc" <<'CC'
TEST_P(Queue, IsFirstInFirstOut) {
  PROVES(1, 2);
}
CC
cat >"$TEST_TMPDIR/other_test.cc" <<'CC'
TEST(Other, WorksWell) {
}
CC

# with FACT...: the checker on a page of these list items.
with() {
  printf '%s\n' "$@" >"$TEST_TMPDIR/facts.md"
  tools/dev/check_facts "$TEST_TMPDIR/facts.md" "$TEST_TMPDIR/queue_test.cc" "$TEST_TMPDIR/other_test.cc"
}

one='- **1** (C) First. — `Queue: IsFirstInFirstOut`'
two=$'- **2** (D) Second, on\n  two lines. — `Queue:\n  IsFirstInFirstOut`, `other_test: Works*`, `other_test`'
expect 0 '^$' with "$one" "$two"
expect 0 '^$' with "$one" "$two" '- **3** (X) Third. — no test: needs two switches'
expect 1 'fact 1 is written twice' with "$one" "$one" "$two"
expect 1 'fact 3 names no test' with "$one" "$two" '- **3** (X) Third.'
expect 1 'proves fact 2, which is not written' with "$one"
expect 1 'fact 1 does not name Queue.IsFirstInFirstOut' with '- **1** (C) First. — `other_test`' "$two"
expect 1 'Queue.IsFirstInFirstOut does not prove it' with "$one" "$two" \
  '- **3** (C) Third. — `Queue: IsFirstInFirstOut`'
expect 1 'there is no gone_test.cc' with "$one" "$two" '- **3** (C) Third. — `gone_test: Works`'
expect 1 'other_test.cc has no Fails' with "$one" "$two" '- **3** (C) Third. — `other_test: Fails`'
expect 1 'the conformance suite has no Stack' with "$one" "$two" '- **3** (C) Third. — `Stack: IsLast`'
expect 2 'nothing would be proved' tools/dev/check_facts "$TEST_TMPDIR/facts.md"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_facts
cd "$TEST_TMPDIR"
suite=tests/transport/softdc/conformance
mkdir -p "$suite" tests/a tests/b
cat >"$suite/queue_test.cc" <<'CC'
TEST_P(Queue, IsFirstInFirstOut) {
  PROVES(1, 2);
}
CC
cat >tests/a/other_test.cc <<'CC'
TEST(Other, WorksWell) {
}
TEST(Second, WorksWell) {
}
TEST(Second, IsSlow) {
}
TEST(Second, DISABLED_IsFast) {
}
CC
# A file of the same name, and a test of the suite's name that is not in the suite.
cat >tests/b/other_test.cc <<'CC'
TEST(Stranger, Works) {
  PROVES(1);
}
CC

# with FACT...: the checker on a page of these list items.
with() {
  printf '%s\n' "$@" >facts.md
  "$checker" facts.md "$suite/queue_test.cc" tests/a/other_test.cc tests/b/other_test.cc
}

one='- **1** (C) First. — `Queue: IsFirstInFirstOut`'
two=$'- **2** (D) Second, on\n  two lines. — `Queue:\n  IsFirstInFirstOut`, `tests/a/other_test: Works*`, `tests/a/other_test`'
expect 0 '^$' with "$one" "$two"
expect 0 '^$' with "$one" "$two" '- **3** (X) Third. — no test: needs two switches'
expect 1 'fact 1 is written twice' with "$one" "$one" "$two"
expect 1 'fact 3 names no test' with "$one" "$two" '- **3** (X) Third.'
expect 1 'proves fact 2, which is not written' with "$one"
expect 1 'fact 1 does not name Queue.IsFirstInFirstOut' with '- **1** (C) First. — `tests/a/other_test`' "$two"
expect 1 'Queue.IsFirstInFirstOut does not prove it' with "$one" "$two" \
  '- **3** (C) Third. — `Queue: IsFirstInFirstOut`'
expect 1 'the conformance suite has no Stack' with "$one" "$two" '- **3** (C) Third. — `Stack: IsLast`'

# third REFERENCE: with a third fact that names it.
third() { with "$one" "$two" "- **3** (C) Third. — \`$1\`"; }
expect 0 '^$' third 'tests/a/other_test: IsSlow, Other.WorksWell, Second.*, Second.Works*'
expect 1 'there is no tests/a/gone_test.cc' third 'tests/a/gone_test: Works'
expect 1 'tests/a/other_test.cc has no Fails' third 'tests/a/other_test: Fails'
# The file by its path: of that name there may be several.
expect 1 'there is no other_test.cc: write its path' third 'other_test: IsSlow'
expect 1 'tests/b/other_test.cc has no IsSlow' third 'tests/b/other_test: IsSlow'
# A suite that is written counts, and without one the name must be the only one.
expect 1 'has no Other.IsSlow' third 'tests/a/other_test: Other.IsSlow'
expect 1 'has no Gone.\*' third 'tests/a/other_test: Gone.*'
expect 1 'has 2 tests WorksWell: write the suite' third 'tests/a/other_test: WorksWell'
expect 1 'DISABLED_IsFast does not run' third 'tests/a/other_test: Second.DISABLED_IsFast'
# A dot is a dot.
expect 1 'has no IsSlo.' third 'tests/a/other_test: IsSlo.'
# What is not in the conformance suite does not run on the devices.
expect 1 'the conformance suite has no Stranger' third 'Stranger: Works'

# A test of the suite is in one file.
cp "$suite/queue_test.cc" "$suite/copy_test.cc"
expect 1 'Queue.IsFirstInFirstOut is in .*queue_test.cc and .*copy_test.cc' "$checker" facts.md "$suite"/{queue,copy}_test.cc
printf 'TEST_P(Queue,\n       IsLong) {\n  PROVES(1);\n}\n' >"$suite/copy_test.cc"
expect 1 'copy_test.cc:1: write suite and name' "$checker" facts.md "$suite"/{queue,copy}_test.cc

expect 2 'nothing would be proved' "$checker" facts.md
expect 1 'no facts: nothing would be proved' "$checker" absent.md tests/a/other_test.cc

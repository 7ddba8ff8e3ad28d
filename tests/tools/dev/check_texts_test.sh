#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

printf 'nobody\tname the actor\n' >"$TEST_TMPDIR/idioms"
text() { # the lines of a source
  printf '%b' "$1" >"$TEST_TMPDIR/a.cc"
  tools/dev/check_texts "$TEST_TMPDIR/idioms" "$TEST_TMPDIR/a.cc"
}
expect 0 '^$' text 'Error("no process listens there");\n'
expect 1 'a.cc: "nobody": name the actor: nobody listens on it' text 'Error("nobody listens on it");\n'
expect 1 'a.cc: "nobody"' text 'Error("what was sent "\n      "nobody has read");\n'
expect 1 'a.cc: "nobody"' text 'Error("a \\"quoted\\" word of nobody");\n'
expect 0 '^$' text 'Name("told nobody");\n'
expect 0 '^$' text '// Error("nobody listens on it");\nint i;  // nobody reads "it" here\n'
expect 0 '^$' text "int i;  // the program's own, for nobody\nError(\"no process listens there\");\n"
expect 2 'nothing would be proved' tools/dev/check_texts "$TEST_TMPDIR/idioms"

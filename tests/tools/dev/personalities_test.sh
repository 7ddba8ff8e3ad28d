#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/dev/personalities.sh in a tree of stubs: whatever keeps a case from passing is counted.
set -euo pipefail
source tests/tools/dev/expect.sh

tree=$TEST_TMPDIR/tree
program=$tree/bazel-bin/tests/some_test
mkdir -p "$tree"/{tools/dev,bin,transport/softdc/config/personalities,bazel-bin/tests/{simulation,nodes}}
cp tools/dev/{personalities,common}.sh "$tree/tools/dev/"
cd "$tree"
echo 'dial: 1' >transport/softdc/config/personalities/odd.textproto
mkdir tests
: >tests/personalities.txt
# writes FILE: a script, with the body from stdin.
script() {
  { echo '#!/usr/bin/env bash' && cat; } >"$1"
  chmod +x "$1"
}
script tools/dev/install.sh <<<':'
script bazel-bin/tests/simulation/simulate <<<':'
script bazel-bin/tests/nodes/nodes_main <<<':'
script bin/bazel <<<'[[ $1 != query ]] || echo //tests:some_test'
# Fails where it is asked to.
script bin/mktemp <<<'[[ -z ${no_room:-} || $* != *tmp.XXXX* ]] || exit 1
exec /usr/bin/mktemp "$@"'
export PATH=$tree/bin:$PATH
passes='echo "[ RUN      ] A.B"; echo "[       OK ] A.B (0 ms)"'
# with BODY: runs with a test program of this body.
with() {
  script "$program" <<<"$1"
  tools/dev/personalities.sh odd
}

expect 0 '^odd +3 +0 +0 +0 ' with "$passes"
expect 1 '^failed: //tests:some_test A\.C$' with "$passes; echo '[ RUN      ] A.C'; echo '[  FAILED  ] A.C (0 ms)'; exit 1"
expect 1 '^failed: //tests:some_test A\.C\(status_139\)$' with "$passes; echo '[ RUN      ] A.C'; exit 139"
expect 1 '^failed: //tests:some_test A\.C\(status_0\)$' with "$passes; echo '[ RUN      ] A.C'; exit 0"
# Status 1, and no case that failed.
expect 1 '^failed: //tests:some_test outside_its_cases\(status_1\)$' with "$passes; exit 1"
expect 1 '^no case ran: //tests:some_test$' with ':'
expect 1 '^no case passed$' with 'echo "[  SKIPPED ] A.B (0 ms)"'
no_room=1 expect 1 '^did not come to its end: //tests:some_test$' with "$passes"

echo 'odd tests:some_test A.B a reason' >tests/personalities.txt
expect 1 '^listed, and it passes: //tests:some_test A\.B$' with "$passes"
expect 0 '^odd +3 +0 +1 +0 ' with '[[ $* != *=A.B* ]] || { echo "[ RUN      ] A.B"; exit 124; }; echo "[ RUN      ] A.C"; echo "[       OK ] A.C (0 ms)"'
expect 1 '^listed, and it crashes: //tests:some_test A\.B$' with 'echo "[ RUN      ] A.B"; exit 139'
echo 'odd tests:some_test * a reason' >tests/personalities.txt
expect 1 '^no case passed$' with "exit 1"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/dev/instructions.sh in a tree of stubs: what is too much, too little or not counted at all fails.
set -euo pipefail
source tests/tools/dev/expect.sh

tree=$TEST_TMPDIR/tree
mkdir -p "$tree"/{tools/dev,bin,benchmarks}
cp tools/dev/{instructions,common}.sh "$tree/tools/dev/"
cd "$tree"
# writes FILE: a script, with the body from stdin.
script() {
  { echo '#!/usr/bin/env bash' && cat; } >"$1"
  chmod +x "$1"
}
script tools/dev/install.sh <<<':'
script bin/bazel <<<':'
# Counts $instructions for each of the 6,400 messages.
script bin/valgrind <<<'for word; do [[ $word != --callgrind-out-file=* ]] || file=${word#*=}; done
echo "summary: $((instructions * 6400))" >"$file"'
export PATH=$tree/bin:$PATH
budget() { printf '%s\n' "$@" >benchmarks/instructions_budget.txt; }
# counted N: runs with a program that takes N instructions.
counted() { instructions=$1 tools/dev/instructions.sh "${@:2}"; }

budget '# a comment' 'raw 8 1000'
expect 0 '^raw +8 +1000 +1000 +$' counted 1000
expect 0 '^raw +8 +1000 +1030 +$' counted 1030
expect 1 '^raw +8 +1000 +1031 +more than 3 % above' counted 1031
expect 0 '^raw +8 +1000 +900 +lower the figure' counted 900
expect 1 '^raw +8 +1000 +499 +less than half' counted 499
expect 1 'nothing was counted in five runs' counted 0
expect 1 "has no row 'raw 1'" counted 1000 raw 1
budget 'raw 8 1000' 'poll 1 500'
expect 1 "has no row 'poll 2'" counted 500 raw 8 poll 2
expect 0 '^poll +1 +500 +500 +$' counted 500 poll 1
budget '# nothing else'
expect 1 'has no rows' counted 1000
budget 'raw 8'
expect 1 'not "WAY BATCH INSTRUCTIONS": raw 8' counted 1000
budget 'raw 8 many'
expect 1 'not "WAY BATCH INSTRUCTIONS": raw 8 many' counted 1000

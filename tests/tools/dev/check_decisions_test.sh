#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_decisions
cd "$TEST_TMPDIR"

head_of() {
  printf '%s\n' "# $1" '' "- **Status:** $2." '- **Context:** why' '  and more' '- **Decision:** what' '- **Consequences:** so' '' '## Details' 'x'
}
index() { printf '%s\n' '# Decisions' '' '| number | decision | status |' '|---|---|---|' "$@" >README.md; }
check() { "$checker" README.md 0*.md; }

# Two pages that are right.
right() {
  rm -f 0*.md
  head_of '0001: rings' Accepted >0001-rings.md
  head_of '0002: keys (superseded by 0001)' 'Superseded by [0001](0001-rings.md): better' >0002-keys.md
  index '| [0001](0001-rings.md) | rings | Accepted |' \
    '| [0002](0002-keys.md) | keys (superseded by 0001) | Superseded by [0001](0001-rings.md): better |'
}
right
expect 0 '^$' check

# A status may take two lines.
sed -i 's/^- \*\*Status:\*\* Accepted\.$/- **Status:** Accepted; 0002\n  changes it./' 0001-rings.md
sed -i 's/| rings | Accepted |/| rings | Accepted; 0002 changes it |/' README.md
expect 0 '^$' check

right
sed -i '/Context/d' 0001-rings.md
expect 1 '0001-rings.md: the head has no \*\*Context:\*\* at its place' check
right
sed -i 's/Consequences/Cost/' 0002-keys.md
expect 1 '0002-keys.md: the head has no \*\*Consequences:\*\* at its place' check
right
sed -i 's/Accepted\./Perhaps./' 0001-rings.md
expect 1 '0001-rings.md: status "Perhaps"' check
right
sed -i 's/ (superseded by 0001)//' 0002-keys.md README.md
expect 1 '0002-keys.md: the title does not say that it is superseded' check
right
sed -i 's/# 0001/# 0003/' 0001-rings.md
expect 1 '0001-rings.md: does not begin with "# 0001: "' check

right
head_of '0002: other' Accepted >0002-other.md
expect 1 '0002-other.md: has the number of 0002-keys.md' check
right
head_of '0003: rings' Accepted >0003-rings.md
expect 1 '0003-rings.md: has the name of 0001-rings.md' check
expect 1 '0003-rings.md: the index has no row for it' check
right
sed -i 's/| rings |/| ring |/' README.md
expect 1 '0001-rings.md: the index has another title or status' check
right
rm 0001-rings.md
expect 1 'README.md: has a row for 0001-rings.md, which is not there' check

expect 2 'nothing would be proved' "$checker" README.md

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_prose
own=$PWD/tools/dev/banned_idioms.txt
cd "$TEST_TMPDIR"
printf 'whoever\tname the actor\n(comes?|came) back\t"returns"\n# a comment\n' >idioms

# with LINE...: the checker on a page of these lines. words N: so many words.
with() {
  printf '%s\n' "$@" >page.md
  "$checker" idioms page.md
}
words() {
  local text=w i
  for ((i = 1; i < $1; ++i)); do text+=" w$i"; done
  printf '%s' "$text"
}

# A statement of 30 words is allowed, one of 31 is not, over two lines or in a cell.
expect 0 '^$' with "$(words 30)."
expect 1 'page.md:1: 31 words in one statement: w w1' with "$(words 31)."
expect 1 'page.md:3: 40 words in one statement' with 'Short.' '' "$(words 20)" "$(words 20)"
expect 0 '^$' with "$(words 20). $(words 20); $(words 20): $(words 20)!"
expect 1 'page.md:3: 31 words' with '| a |' '|---|' "| $(words 31) | b |"
expect 0 '^$' with "| $(words 20) | $(words 20) |"
expect 0 '^$' with "- $(words 20)" "- $(words 20)" '' "$(words 20)" '' "$(words 20)"
expect 1 'page.md:2: 40 words' with 'Text.' "- $(words 20)" "  $(words 20)"
# A code span and a link with its address count as what they show.
expect 0 '^$' with "\`$(words 40)\` $(words 20) [$(words 5)](a b c d e f g h i)."

# Idioms, at the ends of words, over the end of a line, in upper case.
expect 1 'page.md:1: "whoever": name the actor' with 'Whoever reads.'
expect 1 'page.md:1: "comes back": "returns"' with 'The peer comes' 'back.'
expect 0 '^$' with 'whoevers, whoever-reads, un_whoever, `whoever`'
expect 1 'page.md:2: "came back"' with '# Title' '## It came back'

# Not judged: code, and pairs of before and after.
expect 0 '^$' with '```' 'whoever' '```' '' '    whoever' '' 'Text.'
expect 0 '^$' with '| before | after |' '|---|---|' '| whoever | a peer |'
expect 1 'page.md:5: "whoever"' with '| before | after |' '|---|---|' '| whoever | a peer |' '' 'whoever'
# Two pages do not run into one another.
printf 'The peer comes\n' >one.md
printf 'back\n' >two.md
expect 0 '^$' "$checker" idioms one.md two.md

printf 'whoever\n' >broken
expect 1 'broken:1: no tab' "$checker" broken page.md
expect 2 'nothing would be proved' "$checker" idioms
expect 2 'nothing would be proved' "$checker" missing page.md

# The list of this tree is well formed.
printf 'Text.\n' >page.md
expect 0 '^$' "$checker" "$own" page.md

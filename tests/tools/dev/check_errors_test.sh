#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_errors
cd "$TEST_TMPDIR"

cat >page.md <<'EOF'
| entry | code | it says | why, most likely | what to do |
|---|---|---|---|---|
| lost | UNAVAILABLE | `connection lost` | the server died | repeat it |
| late | DEADLINE_EXCEEDED | `deadline of /sluice.Chat/Say exceeded` | a slow server | more time |
EOF

# says WHAT [EXCEPTION [FILE]]: checks a source that makes an error of that text.
says() {
  local file=${3:-middleware/call/a.cc}
  mkdir -p "$(dirname "$file")"
  printf 'return base::Error(code,\n  %s,\n  {.layer = "call", .cause = "connection lost"});\n' "$1" >"$file"
  printf '# a remark\n%s\n' "${2:-}" >exceptions
  "$checker" page.md exceptions "$file"
}

expect 0 '' says '"connection lost"'
expect 0 '' says 'absl::StrCat("the ", name, ": ", "connection lost while it ran")'
expect 0 '' says 'absl::StrCat("deadline of ", method, " exceeded")'
# Words, not letters; and not a word that may stand anywhere.
expect 1 '"eadline of" is neither' says '"eadline of"'
expect 1 '"reconnection lost" is neither' says '"reconnection lost"'
expect 1 '"\?" is neither' says '"lost"'
expect 1 '^middleware/call/a.cc: "teapot" is neither' says '"teapot"'
expect 1 '"\?" is neither' says 'what'
expect 1 '"teapot" is neither' says '"teapot"' 'middleware/call/b.cc: teapot — another file'
expect 1 'nothing needs middleware/call/b.cc: teapot' says '"connection lost"' 'middleware/call/b.cc: teapot — another file'
expect 1 'gives no reason' says '"teapot"' 'middleware/call/a.cc: teapot'
expect 0 '' says '"teapot"' 'middleware/call/a.cc: teapot — nobody drinks tea'
expect 0 '' says 'what' 'middleware/call/a.cc: ? — its callers say'
# There is no exception for whatever a file may say, and each text that is no literal has its own.
expect 1 '"teapot" is neither' says '"teapot"' 'middleware/call/a.cc: * — nobody drinks tea'
twice() {
  says 'what,
  {.layer = "call"}) + base::Error(code, cause' "$@"
}
expect 1 '"\?" is neither' twice 'middleware/call/a.cc: ? — its callers say'
expect 0 '^$' twice $'middleware/call/a.cc: ? — its callers say\nmiddleware/call/a.cc: ? — and others'
expect 0 '' says '"teapot"' '' transport/verbs/a.cc
expect 0 '' says '"teapot"' '' transport/softdc/shm/a.cc
expect 0 '' says '"teapot"' '' tests/a.cc
expect 2 'nothing would be proved' "$checker" page.md exceptions
# with CODE TEXT: checks an additional entry of the page.
with() {
  cp page.md page_with.md
  printf '| another | %s | `%s` | a cause | a remedy |\n' "$@" >>page_with.md
  printf 'return base::Error(code, "connection lost", {.layer = "call"});\n' >middleware/call/a.cc
  : >exceptions
  "$checker" page_with.md exceptions middleware/call/a.cc
}
expect 0 '^$' with NOT_FOUND 'block 2'
# Nothing but placeholders, or one word that any error may have.
expect 1 'the text of another matches almost anything' with NOT_FOUND 'refused'
expect 1 'the text of another matches almost anything' with NOT_FOUND 'mlx5_99'
expect 1 'the text of another matches almost anything' with NOT_FOUND '127.0.0.1:9 /sluice.Chat/Say'
expect 1 'the text of another matches almost anything' with NOT_FOUND ''
# Of two entries of a code, neither is part of the other.
expect 1 'the text of another is that of late too' with DEADLINE_EXCEEDED 'deadline of'
expect 0 '^$' with NOT_FOUND 'deadline of'

: >page.md
expect 1 'no entries' says '"connection lost"'

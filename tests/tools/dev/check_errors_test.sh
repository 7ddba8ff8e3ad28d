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
expect 0 '' says '"lost"'
expect 1 '^middleware/call/a.cc: "teapot" is neither' says '"teapot"'
expect 1 '"\?" is neither' says 'what'
expect 1 '"teapot" is neither' says '"teapot"' 'middleware/call/b.cc: teapot — another file'
expect 1 'nothing needs middleware/call/b.cc: teapot' says '"connection lost"' 'middleware/call/b.cc: teapot — another file'
expect 1 'gives no reason' says '"teapot"' 'middleware/call/a.cc: teapot'
expect 0 '' says '"teapot"' 'middleware/call/a.cc: teapot — nobody drinks tea'
expect 0 '' says 'what' 'middleware/call/a.cc: ? — its callers say'
expect 0 '' says '"teapot"' 'middleware/call/a.cc: * — nobody drinks tea'
expect 0 '' says '"teapot"' '' transport/verbs/a.cc
expect 0 '' says '"teapot"' '' transport/softdc/shm/a.cc
expect 0 '' says '"teapot"' '' tests/a.cc
expect 2 'nothing would be proved' "$checker" page.md exceptions
: >page.md
expect 1 'no entries' says '"connection lost"'

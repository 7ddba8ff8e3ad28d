#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: instructions.sh [--top=N] [WAY BATCH]...
# Instructions that a message takes, both ends, and the N functions (default 12) that most of them are spent in.
# Ways: message_cost.cc. Needs valgrind. A count is the same on a busy machine.
# MESSAGE_COST=PATH counts another build of the program, for a comparison.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

top=12
if [[ ${1:-} == --top=* ]]; then
  top=${1#--top=}
  shift
fi
[[ $# -gt 0 ]] || set -- verbs 1 verbs 8 poll 1 call 1 call 8
program=${MESSAGE_COST:-bazel-bin/benchmarks/message_cost}
[[ -x $program ]] || die "build it first: bazel build //benchmarks:message_cost"
messages=6400
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

while [[ $# -ge 2 ]]; do
  valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file="$work/profile" --collect-atstart=no \
    --toggle-collect='RunMessages*' "$program" "$1" "$2" "$messages" 2>"$work/errors" ||
    die "$(cat "$work/errors")"
  # A function has one line per source file of which something was inlined into it.
  callgrind_annotate --auto=no --threshold=100 "$work/profile" |
    awk -v messages="$messages" '
      /^ *[0-9,]+ \(/ {
        gsub(",", "", $1)
        name = $0
        sub(/^ *[0-9,]+ \([^)]*\) +/, "", name)
        if (name ~ /PROGRAM TOTALS/) name = "(all)"
        sub(/^[^: ]*:/, "", name)
        sub(/ \[[^\]]*\]$/, "", name)
        own[name] += $1
      }
      END { for (name in own) printf "%8.1f  %.100s\n", own[name] / messages, name }' |
    sort -rn >"$work/functions"
  printf '%s, %s at a time: instructions a message\n' "$1" "$2"
  head -n "$((top + 1))" "$work/functions"
  # What the server's side takes, where it can be told apart (style_ways.cc).
  callgrind_annotate --auto=no --threshold=100 --inclusive=yes "$work/profile" |
    awk -v messages="$messages" '/:PollServer/ { gsub(",", "", $1); if ($1 > most) most = $1 }
      END { if (most > 0) printf "%8.1f  (of these, the server'"'"'s side)\n", most / messages }'
  shift 2
done

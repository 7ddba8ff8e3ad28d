#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: instructions.sh [--rooms] [WAY BATCH]...
# Counts the instructions of messages and calls (benchmarks/message_cost.cc) and holds them against benchmarks/instructions_budget.txt: all
# rows, or those named. More than 3 % above its figure fails a row; more than 3 % below asks for a lower figure. Less than half of it fails
# too: that is other work than what the figure stands for. --rooms: also by room.
# A run in which the two ends get out of step takes a pass more, so the smallest of at most five runs counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

budget=benchmarks/instructions_budget.txt
rooms=
if [[ ${1:-} == --rooms ]]; then
  rooms=yes
  shift
fi
[[ $(($# % 2)) -eq 0 ]] || die "usage: ./dev instructions [--rooms] [WAY BATCH]..."
rows=()
while read -r way batch limit; do
  rows+=("$way $batch $limit")
done < <(sed -e 's/#.*//' -e '/^ *$/d' "$budget")
if [[ $# -gt 0 ]]; then
  named=()
  while [[ $# -gt 0 ]]; do
    row=$(printf '%s\n' "${rows[@]}" | grep -E "^$1 $2 " || true)
    [[ -n $row ]] || die "$budget has no row '$1 $2'"
    named+=("$row")
    shift 2
  done
  rows=("${named[@]}")
fi
[[ ${#rows[@]} -gt 0 ]] || die "$budget has no rows: nothing would be proved"
for row in "${rows[@]}"; do
  [[ $row =~ ^[a-z_]+\ [1-9][0-9]*\ [1-9][0-9]*$ ]] || die "$budget: not \"WAY BATCH INSTRUCTIONS\": $row"
done

tools/dev/install.sh valgrind
step "building the program that is counted"
bazel build //benchmarks:message_cost
messages=6400
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count() {
  valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file="$work/$3" --collect-atstart=no --toggle-collect='RunMessages*' \
    bazel-bin/benchmarks/message_cost "$1" "$2" "$messages" >"$work/said" 2>&1 || die "message_cost $1 $2: $(cat "$work/said")"
  awk -v messages="$messages" '/^(summary|totals):/ { printf "%d\n", $2 / messages; exit }' "$work/$3"
}

# Instructions by the namespace of the function; what is in none of ours is named by its library.
by_room() {
  callgrind_annotate --auto=no --threshold=100 "$1" | awk -v messages="$messages" '
    /^ *[0-9,]+ \(/ && !/PROGRAM TOTALS/ {
      gsub(",", "", $1)
      own = $1
      room = "other"
      if (match($0, /sluice::[a-z_]+::/)) room = substr($0, RSTART + 8, RLENGTH - 10)
      else if ($0 ~ /sluice::/) room = "api"
      else if ($0 ~ /google::protobuf|libprotobuf/) room = "protobuf"
      else if ($0 ~ /malloc|free|operator new|operator delete/) room = "malloc"
      else if ($0 ~ /libc\.so|libstdc/) room = "libc, libstdc++"
      sum[room] += own
    }
    END { for (room in sum) if (sum[room] >= messages) printf "%10d  %s\n", sum[room] / messages, room }' | sort -rn
}

status=0
printf '%-10s %5s %12s %12s\n' way batch budget counted
for row in "${rows[@]}"; do
  read -r way batch limit <<<"$row"
  least=
  for try in 1 2 3 4 5; do
    counted=$(count "$way" "$batch" "profile.$try")
    [[ $counted -gt 0 ]] || continue # callgrind saw no call of RunMessages: it happens once in some hundred runs
    if [[ -z $least || $counted -lt $least ]]; then
      least=$counted
      best=$work/profile.$try
    fi
    [[ $((least * 100)) -gt $((limit * 103)) ]] || break
  done
  [[ -n $least ]] || die "$way $batch: nothing was counted in five runs"
  verdict=
  if [[ $((least * 100)) -gt $((limit * 103)) ]]; then
    verdict="more than 3 % above: find out why, or raise the figure with its reason"
    status=1
  elif [[ $((least * 2)) -lt $limit ]]; then
    verdict="less than half: was all of it counted? Then lower the figure"
    status=1
  elif [[ $((least * 103)) -lt $((limit * 100)) ]]; then
    verdict="lower the figure in $budget"
  fi
  printf '%-10s %5s %12s %12s  %s\n' "$way" "$batch" "$limit" "$least" "$verdict"
  [[ -z $rooms ]] || by_room "$best"
done
exit $status

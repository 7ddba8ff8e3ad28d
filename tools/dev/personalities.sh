#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: personalities.sh [--short] [NAME...]
# Runs tests of endpoints, sessions, the API and the conformance suite, and seeds of the simulation, on softdc under each personality
# (transport/softdc/config/personalities/NAME.textproto, default all), and ends with a table. --short: a few test files and seeds.
#
# tests/personalities.txt lists the cases that assert another device, with the reason. They run as well, apart from the others: a listed
# case that passes is an error, so that the list stays true. A program listed with '*' is not run under that personality, nor is a case
# with '~' before it, whose result depends on real time, or which aborts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

folder=transport/softdc/config/personalities
list=tests/personalities.txt
short=
if [[ ${1:-} == --short ]]; then
  short=1
  shift
fi
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for file in "$folder"/*.textproto; do names+=("$(basename "$file" .textproto)"); done
fi
for name in "${names[@]}"; do
  [[ -r $folder/$name.textproto ]] || die "there is no $folder/$name.textproto"
done

simulate=tests/simulation/simulate
calls=tests/nodes/nodes_main
if [[ -n $short ]]; then
  targets=(//tests/transport/endpoint:{device_life,endpoint,large,target_error}_test //tests/middleware/api:{channel,styles}_test
    //tests/middleware/session:large_messages_test)
  seeds=(--seed 1 --seeds 5 --messages 2000)
  calls_seeds=(--seed 1 --seeds 2)
else
  targets=(//tests/transport/endpoint/... //tests/middleware/api/... //tests/middleware/session/...
    //tests/transport/softdc/conformance:conformance_test)
  seeds=(--seed 1 --seeds 30 --messages 5000)
  calls_seeds=(--seed 1 --seeds 10)
fi
tools/dev/install.sh
step "building"
# Programs that set SOFTDC_CONFIG themselves (env of their target) have a personality of their own.
labels=()
lines_of labels bazel query --noshow_progress "tests(set(${targets[*]})) except attr(env, SOFTDC_CONFIG, tests(set(${targets[*]})))"
bazel build --noshow_progress "${labels[@]}" "//${simulate%/*}:${simulate##*/}" "//${calls%/*}:${calls##*/}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$PWD

# The dials of a file as one line.
dials_of() { sed 's/#.*//' "$folder/$1.textproto" | tr -s '\n ' ' '; }

# listed PERSONALITY PROGRAM: the patterns of cases that are listed.
listed() {
  awk -v name="$1" -v program="$2" '
    /^#/ || NF == 0 { next }
    ("," $1 ",") ~ ("," name ",") && $2 == program { print $3 }' "$list"
}

# run_cases NAME LABEL OUT FILTER SECONDS: lines "ok CASE", "failed CASE", "skipped CASE".
run_cases() {
  local label=$2 out=$3 program status=0
  program=${label#//}
  program=$root/bazel-bin/${program/://}
  local tmp
  tmp=$(mktemp -d "$work/tmp.XXXX")
  (
    cd "$program.runfiles"/*/ 2>/dev/null || cd "$root"
    TEST_TMPDIR=$tmp TEST_SRCDIR=$program.runfiles SOFTDC_CONFIG=$(cat "$work/dials") \
      timeout "$5" "$program" --gtest_filter="$4" >"$out.log" 2>&1
  ) || status=$?
  awk -v status="$status" '
    /^\[ RUN      \] / { current = $4 }
    /^\[       OK \] / { print "ok", $4; current = "" }
    /^\[  SKIPPED \] .* \([0-9]+ ms\)$/ { print "skipped", $4; current = "" }
    /^\[  FAILED  \] .* \([0-9]+ ms\)$/ { sub(/,$/, "", $4); print "failed", $4; current = ""; failed = 1 }
    END {
      # With 1 a program says that cases failed; without such a case it says something else.
      # A case that began and has no end was left, with status 0 by exit(0).
      if (status > 1 || (status == 1 && !failed) || current != "") print "failed", (current == "" ? "outside_its_cases" : current) "(status_" status ")"
    }' "$out.log" >"$out"
  rm -rf "$tmp"
}

# The file names of a label, or of a program of seeds.
key_of() {
  local program=${1#//}
  echo "$work/${program//[\/:]/_}"
}

# one NAME LABEL: $work/LABEL.results, what is wrong in $work/LABEL.wrong, and at its end $work/LABEL.done
one() {
  local name=$1 label=$2 key program pattern
  program=${label#//}
  key=$(key_of "$label")
  mapfile -t patterns < <(listed "$name" "$program")
  if [[ " ${patterns[*]} " == *' * '* ]]; then
    rm -f "$key".{results,wrong,count}
    : >"$key.done"
    return
  fi
  local filter='*'
  [[ ${#patterns[@]} -eq 0 ]] || filter="-$(IFS=: && echo "${patterns[*]#\~}")"
  run_cases "$name" "$label" "$key.results" "$filter" 900
  : >"$key.wrong"
  : >"$key.count"
  awk -v label="$label" '$1 == "failed" { print "failed: " label " " $2 }' "$key.results" >>"$key.wrong"
  [[ -s $key.results || ${#patterns[@]} -gt 0 ]] || echo "no case ran: $label" >>"$key.wrong"
  if [[ -s $key.wrong ]]; then grep -E -B 12 '^\[  FAILED  \] .* ms\)$' "$key.results.log" | tail -n 60 >"$key.why" || true; fi
  for pattern in "${patterns[@]}"; do
    [[ $pattern != '~'* ]] || continue
    run_cases "$name" "$label" "$key.listed" "$pattern" 60
    if ! [[ -s $key.listed ]]; then
      echo "listed, and there is no such case: $label $pattern" >>"$key.wrong"
    elif ! grep -q ^failed "$key.listed"; then
      echo "listed, and it passes: $label $pattern" >>"$key.wrong"
    elif grep '(status_' "$key.listed" | grep -v '(status_124)' >"$key.crashed"; then # 124: it waits for what does not come
      echo "listed, and it crashes: $label $pattern" >>"$key.wrong"
    else
      grep -c ^failed "$key.listed" >>"$key.count"
      ! grep -q ^ok "$key.listed" || step "$label $pattern: $(grep -c ^ok "$key.listed") of the listed cases pass"
    fi
  done
  : >"$key.done"
}

# seeds NAME PROGRAM ARGUMENTS...: as one case
run_seeds() {
  local program=$1 key
  key=$(key_of "$1")
  shift
  : >"$key.count"
  : >"$key.wrong"
  if SOFTDC_CONFIG=$(cat "$work/dials") timeout 900 "bazel-bin/$program" "$@" >"$key.log" 2>&1; then
    echo "ok seeds" >"$key.results"
  else
    echo "failed seeds" >"$key.results"
    echo "failed: $program $*: $(grep -m 1 -E '^FAILED' "$key.log" || tail -n 1 "$key.log")" >"$key.wrong"
  fi
  : >"$key.done"
}

table=() all_wrong=0
for name in "${names[@]}"; do
  step "personality $name: $(dials_of "$name")"
  started=$SECONDS
  rm -f "$work"/*.results "$work"/*.wrong "$work"/*.count "$work"/*.why "$work"/*.done
  dials_of "$name" >"$work/dials"
  running=0
  for label in "${labels[@]}"; do
    one "$name" "$label" &
    # Two at a time, as Bazel runs them.
    if ((++running >= 2)); then wait -n || true; fi
  done
  wait
  grep -qs '^ok' "$work"/*.results || echo "no case passed" >"$work/none.wrong"
  run_seeds "$simulate" "${seeds[@]}" &
  run_seeds "$calls" "${calls_seeds[@]}" &
  wait
  # What stopped halfway, for want of room on the disk for example, left none of its files, or some.
  for label in "${labels[@]}" "$simulate" "$calls"; do
    key=$(key_of "$label")
    [[ -e $key.done ]] || echo "did not come to its end: $label" >>"$key.wrong"
  done
  passed=$(cat "$work"/*.results | grep -c '^ok' || true)
  skipped=$(cat "$work"/*.results | grep -c '^skipped' || true)
  wrong=$(cat "$work"/*.wrong | wc -l)
  other=$(cat "$work"/*.count | awk '{ n += $1 } END { print n + 0 }')
  cat "$work"/*.why "$work"/*.wrong >&2 2>/dev/null || true
  all_wrong=$((all_wrong + wrong))
  table+=("$(printf '%-16s %7d %7d %7d %7d %7d s' "$name" "$passed" "$wrong" "$other" "$skipped" "$((SECONDS - started))")")
  # Again in the table at the end, which a run that is interrupted does not reach.
  echo "${table[-1]}" >&2
done
printf '%-16s %7s %7s %7s %7s %9s\n' personality passed failed listed skipped time
printf '%s\n' "${table[@]}"
[[ $all_wrong -eq 0 ]] || die "$all_wrong cases failed, or passed though listed"

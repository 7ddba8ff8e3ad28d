#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: fuzz.sh [seconds]
#        fuzz.sh --short
# Runs every fuzz target for that long (60), with AddressSanitizer, from the kept corpus. New inputs that reach new
# code are added to the corpus; an input that ends the process is kept in a folder of its own, which is printed.
# --short: a minute for all targets together, and the corpus stays as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

short=
[[ ${1:-} != --short ]] || short=yes
[[ $# -le 1 && (-n $short || ${1:-60} =~ ^[1-9][0-9]*$) ]] || die "usage: ./dev fuzz [seconds], or ./dev fuzz --short"
folder=tests/transport/peer/fuzz
tools/dev/install.sh clang libclang-rt-dev  # the fuzzer and the sanitizers, which clang only recommends
sources() { find "$folder" -name '*_fuzz.cc' -printf '%f\n' | sed 's/_fuzz\.cc$//' | sort; }
targets=()
lines_of targets sources
seconds=${1:-60}
[[ -z $short ]] || seconds=$((60 / ${#targets[@]} + 1))
labels=()
for target in "${targets[@]}"; do labels+=("//$folder:${target}_fuzz"); done
step "building ${#targets[@]} fuzz targets"
bazel build --config=fuzz "${labels[@]}"
root=$(bazel info --config=fuzz bazel-bin 2>/dev/null)

status=0
for target in "${targets[@]}"; do
  step "$target: $seconds s"
  found=$(mktemp -d)
  log=$found.log  # long: libraries complain about inputs
  if ! "$root/$folder/${target}_fuzz" -max_len=1024 -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$found/crash-" "$found" "$folder/corpus/$target" >"$log" 2>&1; then
    status=1
    tail -n 60 "$log" >&2
    echo "fuzz: the input is in $found" >&2
    continue
  fi
  # "stat::number_of_executed_units: N"
  units=$(awk '$1 == "stat::number_of_executed_units:" { print $2 }' "$log")
  echo "$target: ${units:-0} inputs"
  [[ ${units:-0} -gt 0 ]] || {
    echo "fuzz: $target ran no input" >&2
    status=1
  }
  # Only what reaches code that the corpus does not.
  [[ -n $short ]] || "$root/$folder/${target}_fuzz" -merge=1 -verbosity=0 "$folder/corpus/$target" "$found"
  rm -rf "$found" "$log"
done
[[ $status -eq 0 ]] && echo "fuzz: clean"
exit $status

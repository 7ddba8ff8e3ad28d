#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: fuzz.sh [seconds]
# Runs every fuzz target for that long (60), with AddressSanitizer, from the kept corpus. New inputs that reach new
# code are added to the corpus; an input that ends the process is kept beside the targets' folder and printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

seconds=${1:-60}
folder=tests/transport/peer/fuzz
tools/dev/install.sh clang
mapfile -t targets < <(find "$folder" -name '*_fuzz.cc' -printf '%f\n' | sed 's/_fuzz\.cc$//' | sort)
labels=()
for target in "${targets[@]}"; do labels+=("//$folder:${target}_fuzz"); done
step "building ${#targets[@]} fuzz targets"
bazel build --config=fuzz "${labels[@]}"
root=$(bazel info --config=fuzz bazel-bin 2>/dev/null)

status=0
for target in "${targets[@]}"; do
  step "$target: $seconds s"
  found=$(mktemp -d)
  if ! "$root/$folder/${target}_fuzz" -max_len=1024 -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$found/crash-" "$found" "$folder/corpus/$target"; then
    status=1
    echo "fuzz: the input is in $found" >&2
    continue
  fi
  # Only what reaches code that the corpus does not.
  "$root/$folder/${target}_fuzz" -merge=1 -verbosity=0 "$folder/corpus/$target" "$found"
  rm -rf "$found"
done
[[ $status -eq 0 ]] && echo "fuzz: clean"
exit $status

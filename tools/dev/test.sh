#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: test.sh [bazel options] [-- target patterns]
# Runs the tests and ends with one line "N passed, M failed[, K skipped]" that counts test cases, not targets.
# Whatever went wrong (a case, a crash, a build, a target without a result) is in M and in the exit status.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  options+=("$1")
  shift
done
[[ $# -eq 0 ]] || shift
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(//...)

# CI's machine is shared, and many tests start processes: there a failure must happen twice. count_cases names the tests that
# passed only at the second attempt, and more than two fail the run: find the cause of each.
# A result that another run left in a cache proves nothing there.
[[ -z ${CI:-} ]] || options+=(--flaky_test_attempts=2 --nocache_test_results)

prune_disk_cache

events=$(mktemp)
trap 'rm -f "$events"' EXIT
step "building and testing ${targets[*]}"
bazel test --keep_going "${options[@]}" --build_event_json_file="$events" -- "${targets[@]}"
bazel_status=$?

tools/dev/count_cases "$bazel_status" "$events"

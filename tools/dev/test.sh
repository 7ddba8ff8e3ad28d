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

# CI's machine is shared, and many tests run processes on it: there a failure has to happen twice. What passed at the
# second attempt is named, and is a fault to be mended.
[[ -z ${CI:-} ]] || options+=(--flaky_test_attempts=2)

events=$(mktemp)
trap 'rm -f "$events"' EXIT
step "building and testing ${targets[*]}"
bazel test --keep_going "${options[@]}" --build_event_json_file="$events" -- "${targets[@]}"
bazel_status=$?

tools/dev/count_cases "$bazel_status" "$events"

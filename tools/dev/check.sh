#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything a change must pass, cheapest first. Goes on after a failure and names all of them at the end.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh clang-format clang-tidy shellcheck git spin || exit 1
failures=()
run() {
  local name=$1 started=$SECONDS
  shift
  step "check: $name"
  if "$@"; then
    step "check: $name passed ($((SECONDS - started)) s)"
  else
    failures+=("$name")
    step "check: $name FAILED ($((SECONDS - started)) s)"
  fi
}

shell_scripts() {
  local scripts
  lines_of scripts grep -rlE '^#!/(usr/bin/env bash|bin/sh)' benchmarks examples tests third_party tools || return
  shellcheck -x --severity=warning dev .ci/run "${scripts[@]}"
}

run format tools/dev/format.sh --check
run "shell scripts" shell_scripts
run static ./dev static
run test ./dev test
run lint tools/dev/lint.sh
for sanitizer in asan tsan; do
  run "$sanitizer" ./dev "$sanitizer"
done
run models ./dev models
run simulation tools/dev/simulate.sh --seed 1 --seeds 30 --messages 5000
run benchmarks tools/dev/bench.sh --short

[[ ${#failures[@]} -eq 0 ]] || die "failed: ${failures[*]}"
step "all checks passed"

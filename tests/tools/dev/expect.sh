# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests beside it, which run in Bazel's runfiles folder and may write below $TEST_TMPDIR.

# expect STATUS PATTERN COMMAND...: the command ends with that status and prints a line that matches.
expect() {
  local want=$1 pattern=$2 got=0 output
  shift 2
  output=$("$@" 2>&1) || got=$?
  if [[ $got -ne $want ]] || ! grep -qE -- "$pattern" <<<"$output"; then
    printf 'line %s: %s\n  wanted status %s and /%s/\n  got status %s and:\n%s\n' \
      "${BASH_LINENO[0]}" "$*" "$want" "$pattern" "$got" "$output"
    exit 1
  fi
}

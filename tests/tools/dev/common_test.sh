#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

# list COMMAND: the lines of the command, each in brackets.
list() {
  local found=()
  lines_of found "$@" || return
  printf '[%s]' "${found[@]}"
}
two() { printf 'a b\nc\n'; }
half() { two | cat && return 3; }
broken_writer() { half | sort; }

expect 0 '^\[a b\]\[c\]$' list two
# Half of a list is none, also if the reader of a pipe succeeds.
expect 1 '^dev: no list: half$' list half
expect 1 '^dev: no list: broken_writer$' list broken_writer
expect 1 '^dev: no list: true$' list true

# Sources of a folder that is not there are missed.
mkdir -p "$TEST_TMPDIR"/{benchmarks,examples,middleware,tests,tools}
cd "$TEST_TMPDIR"
touch tests/a_test.cc
expect 1 'transport.*No such file' list cxx_files
mkdir transport
expect 0 '^\[tests/a_test.cc\]$' list cxx_files
echo "common_test: passed"

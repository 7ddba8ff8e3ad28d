#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

with_lines() {
  seq "$1" >"$TEST_TMPDIR/a.cc"
  tools/dev/check_lengths "$TEST_TMPDIR/a.cc"
}
expect 0 '^$' with_lines 400
expect 0 '401 lines, over 400' with_lines 401
expect 0 '600 lines, over 400' with_lines 600
expect 1 '601 lines, the limit is 600' with_lines 601
expect 2 'nothing would be proved' tools/dev/check_lengths

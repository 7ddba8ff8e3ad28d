#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

header() { # the lines behind the license
  printf '// SPDX-License-Identifier: Apache-2.0\n%b' "$1" >"$TEST_TMPDIR/a.h"
  tools/dev/check_banners "$TEST_TMPDIR/a.h"
}
expect 0 '^$' header '//\n// A queue.\n#ifndef A_H_\n'
expect 1 'a.h: no banner' header '#ifndef A_H_\n// A queue.\n'
expect 1 'a.h: no banner' header '//\n#ifndef A_H_\n'
expect 2 'nothing would be proved' tools/dev/check_banners

options() { # the fields of a struct
  printf '//\n// Options.\n#ifndef A_H_\nstruct Options {\n%b};\n' "$1" >"$TEST_TMPDIR/b.h"
  tools/dev/check_banners "$TEST_TMPDIR/b.h" -- "$TEST_TMPDIR/b.h"
}
expect 0 '^$' options '  // Maximum size. Range: 1 to 2.\n  uint32_t size = 1;\n'
expect 0 '^$' options '  // First and last. Range: 1 to 2.\n  uint32_t first = 1;\n  absl::Duration last = absl::Seconds(1);\n'
expect 0 '^$' options '  // The MTU. Values: 256, 512.\n  uint32_t mtu = 256;\n'
expect 0 '^$' options '  std::string name;\n'
expect 1 'comment of size says no' options '  // Maximum size.\n  uint32_t size = 1;\n'
expect 1 'comment of size says no' options '  // Other. Range: 1 to 2.\n  uint32_t other = 1;\n\n  uint32_t size = 1;\n'
expect 1 'size has no default' options '  // Maximum size. Range: 1 to 2.\n  uint32_t size;\n'

words() { # a banner, held against one idiom
  printf 'whoever\tname the actor\n' >"$TEST_TMPDIR/idioms"
  printf '// SPDX-License-Identifier: Apache-2.0\n%b#ifndef A_H_\n// whoever: behind the banner.\n' "$1" >"$TEST_TMPDIR/c.h"
  tools/dev/check_banners --words "$TEST_TMPDIR/idioms" "$TEST_TMPDIR/c.h"
}
expect 0 '^$' words '//\n// A queue.\n//\n// Ownership     The user.\n// Threads       Any.\n'
expect 1 'c.h: "whoever": name the actor' words '//\n// For Whoever\n// asks.\n'
expect 1 'the label "Who owns it": write "Ownership"' words '// Who owns it   The user.\n'
expect 1 'the label "Thread-safety": write "Threads"' words '// A queue. Thread-safety: none.\n'
expect 1 'the label "Ownership" is not at its place' words '// Threads       Any.\n// Ownership     The user.\n'
expect 2 'nothing would be proved' tools/dev/check_banners --words "$TEST_TMPDIR/idioms"

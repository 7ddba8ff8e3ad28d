#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_names
cd "$TEST_TMPDIR"
mkdir -p room tests/room
printf '%s\n' 'class Pool final {' ' public:' '  void Post(int slot);' '  static constexpr int kMost = 3;' '};' >room/pool.h
printf '%s\n' '#include "room/pool.h"' 'void Pool::Post(int slot) { ibv_post(slot); }' 'void Other::Go() {}' >room/pool.cc
printf '%s\n' 'cc_tests(' '    name = "room_tests",' '    tests = ["pool_test"],' ')' >tests/room/BUILD
printf '%s\n' 'commands:' '  test      runs the tests' >dev

# with LINE...: the checker on a Markdown page of these lines.
with() {
  printf '%s\n' "$@" >page.md
  "$checker" page.md -- room/pool.h room/pool.cc
}
drawn() {
  printf '%s\n' "$@" >page.svg
  "$checker" page.svg -- room/pool.h room/pool.cc
}

# What exists.
expect 0 '^$' with '`Pool`, `Pool::Post`, `Pool::Post()`, `room::Pool::kMost`, `Other::Go`, `ibv_post`'
expect 0 '^$' with '`room/pool.h`, `room/`' '`//tests/room:pool_test`' '`./dev test`, `./dev test -v`'
expect 0 '^$' drawn '<text class="code" x="1">Pool::Post</text><text class="note">Pool::Gone</text>'

# What does not.
expect 1 'page.md:2: Pool::Gone: no source has it' with '`Pool`' '`Pool::Gone`'
expect 1 'page.md:1: Pool::ibv_post: no source has it' with '`Pool` `Nobody::Post` `Pool::ibv_post`'
expect 1 'page.md:1: Nobody::Post: no source has it' with '`Nobody::Post`'
expect 1 'page.md:1: Poo: no source has it' with '`Poo`'
expect 1 'page.md:1: room/gone.h: there is no such file' with '`room/gone.h`'
expect 1 'gone.h: there is no such file' with '`gone.h`'
expect 1 'tests/room/BUILD has no target gone_test' with '`//tests/room:gone_test`'
expect 1 'there is no tests/gone/BUILD' with '`//tests/gone:pool_test`'
expect 1 './dev has no command gone' with '`./dev gone`'
expect 1 'neither a label, a path nor a name' with '`a + b`'
expect 1 'page.svg:2: Pool::Gone: no source has it' drawn '<svg>' '<text class="code" x="1">Pool::Gone</text>'

# A code block is not judged, and a page without names proves nothing.
expect 0 '^$' with '`Pool`' '```' '`Gone`' '```'
expect 2 'the pages have no names' with 'no names here'
expect 2 'nothing would be proved' "$checker" page.md
expect 2 'nothing would be proved' "$checker" -- room/pool.h

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

checker=$PWD/tools/dev/check_docs
cd "$TEST_TMPDIR"
mkdir -p pages
printf '%s\n' 'int main() {' '  int a = 1;' '  int b = 2;' '' '  return a;' '}' >code.cc

# with LINE...: the checker on a page of these lines.
with() {
  printf '%s\n' "$@" >pages/page.md
  "$checker" pages/page.md
}
block() { with '<!-- from code.cc -->' '```cpp' "$@" '```'; }

expect 0 '^$' with '[a](page.md) [b](../code.cc#top) [c](https://there.is/none) [d](#here) `[e](none)`'
expect 1 'page.md:2: a link to none.md, which is not there' with 'a page' '[a](page.md), [b](none.md)'
expect 0 '^$' with '```' '[a](none)' '```'

expect 0 '^$' block '  int a = 1;' '  int b = 2;' '' '  return a;'
expect 0 '^$' block 'int main() {' 'int a = 1;' '…' 'return a;'
expect 1 'not in code.cc: int a = 1;' block 'int a = 1;' 'return a;'
expect 1 'not in code.cc: int c = 3;' block 'int a = 1;' '// …' 'int c = 3;'
expect 1 'there is no file gone.cc' with '<!-- from gone.cc -->' '```cpp' 'int a;' '```'
# Only the block that follows is compared.
expect 0 '^$' with '<!-- from code.cc -->' '```' 'int a = 1;' '```' '```' 'int c;' '```'
# A page whose C++ is compiled has none that is not.
expect 1 'page.md:5: C\+\+ that no file has' with '<!-- from code.cc -->' '```cpp' 'int a = 1;' '```' '```cpp' 'int c;' '```'
expect 1 'page.md:1: C\+\+ that no file has' with '```cpp' 'int c;' '```' '<!-- from code.cc -->' '```cpp' 'int a = 1;' '```'
expect 0 '^$' with '<!-- from code.cc -->' '```cpp' 'int a = 1;' '```' '<!-- not compiled: theirs -->' '```cpp' 'int c;' '```'
expect 0 '^$' with '```cpp' 'int c;' '```'
expect 2 'nothing would be proved' "$checker"

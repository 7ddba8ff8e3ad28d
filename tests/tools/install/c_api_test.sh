#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: c_api_test.sh
# Compiles a program in C99 against an installation, with pkg-config and nothing else, and runs it. libsluice_c.so exports the functions
# that sluice.h declares, under their version, and nothing else.
set -euo pipefail

prefix=$TEST_TMPDIR/prefix
tools/install/copy.sh tools/install/prefix "$prefix"
# Nothing may come from anywhere else.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

fail() {
  echo "c_api_test: $*" >&2
  exit 1
}

# -- what the library exports
library=$prefix/lib/libsluice_c.so.0
nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort >"$TEST_TMPDIR/exported"
sed -nE 's/^[a-z].*[ *](sluice_[a-z_]+)\(.*/\1@@SLUICE_C_0/p' "$prefix/include/sluice.h" | LC_ALL=C sort >"$TEST_TMPDIR/declared"
[[ $(wc -l <"$TEST_TMPDIR/declared") -ge 30 ]] || fail "only $(wc -l <"$TEST_TMPDIR/declared") functions were found in sluice.h"
differences=$(diff --unchanged-line-format= --old-line-format='  declared, not exported: %L' \
  --new-line-format='  exported, not declared: %L' "$TEST_TMPDIR/declared" "$TEST_TMPDIR/exported") ||
  fail "tools/install/sluice_c.lds is not what sluice.h declares:"$'\n'"$differences"
[[ $(readelf -d "$library") == *'Library soname: [libsluice_c.so.0]'* ]] || fail "the soname is not libsluice_c.so.0"
# One copy of Sluice in a process.
[[ $(readelf -d "$library") == *'Shared library: [libsluice.so.0]'* ]] || fail "it does not use libsluice.so.0"

# -- functions that were released once stay (constants and structures: tests/middleware/c_api/c_abi_test.cc)
while read -r kept; do
  grep -qxF "$kept@@SLUICE_C_0" "$TEST_TMPDIR/exported" || fail "$kept is missing: programs that use it would not start"
done < <(sed '/^#/d' tests/tools/install/c_api_symbols.txt)

# -- the header, in C and in C++
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
read -ra compile < <(pkg-config --cflags sluice_c)
read -ra link < <(pkg-config --libs sluice_c)
printf '#include <sluice.h>\n#include <sluice.h>\nint main(void) { return sluice_c_version() != SLUICE_C_VERSION; }\n' >"$TEST_TMPDIR/header.c"
cp "$TEST_TMPDIR/header.c" "$TEST_TMPDIR/header.cc"
gcc -std=c99 -fsyntax-only "${warnings[@]}" "${compile[@]}" "$TEST_TMPDIR/header.c"
g++ -std=c++11 -fsyntax-only "${warnings[@]}" "${compile[@]}" "$TEST_TMPDIR/header.cc"

# -- a program
gcc -std=c99 "${warnings[@]}" "${compile[@]}" tests/tools/install/c_api_client.c -o "$TEST_TMPDIR/client" "${link[@]}" "-Wl,-rpath,$prefix/lib"
export SOFTDC_DOMAIN=c-api-test-$$
coproc server { exec tests/middleware/c_api/chat_server; }
# shellcheck disable=SC2154  # coproc sets it.
trap 'kill "$server_PID" 2>/dev/null || true' EXIT
read -r _ _ address <&"${server[0]}"
said=$("$TEST_TMPDIR/client" "$address") || fail "the client failed: $said"
[[ $said == ok ]] || fail "the client said '$said'"
said=$("$TEST_TMPDIR/client" 127.0.0.1:1) && fail "a client without a server said '$said'"
[[ $said == 'connect: UNAVAILABLE: '* ]] || fail "a client without a server said '$said'"

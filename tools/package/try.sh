#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: try.sh
# Runs as root in a bare Debian root, in a folder with embedding/, python/ and c_api_client.c, with packages in ../packages: installs
# them, uses each, and removes them (./dev package --try).
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
here=$PWD

step() { printf '==> %s\n' "$*" >&2; }
fail() {
  echo "try: $*" >&2
  exit 1
}
apt() {
  apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >"$here/apt.log" 2>&1 || {
    cat "$here/apt.log" >&2
    fail "apt-get $1 failed (above)"
  }
}
greets() {
  [[ $("$1" Ada) == 'hello, Ada' ]] || fail "$1 does not greet"
}

apt update
step "the C++ library alone: $(ls ../packages | tr '\n' ' ')"
apt install --yes --no-install-recommends ../packages/libsluice0_*.deb
[[ $(ldconfig -p) == *'libsluice.so.0 '* ]] || fail "ldconfig does not know libsluice.so.0"
[[ $(dpkg-query -W) != *libprometheus-cpp* ]] || fail "libsluice0 needs prometheus-cpp"
apt purge --yes libsluice0

step "all packages, and a compiler"
apt install --yes --no-install-recommends ../packages/*.deb g++ make cmake prometheus-cpp-dev man-db procps
step "programs"
for program in sluice_call sluice_info sluice_perf sluice_stat softdc_run; do
  "$program" --help >/dev/null || fail "$program --help failed"
  [[ $(zcat "/usr/share/man/man1/$program.1.gz") == *'.SH NAME'* ]] || fail "$program has no manual page"
  grep -q "complete .*$program" "/usr/share/bash-completion/completions/$program" || fail "$program has no completion"
done
softdc_run true || fail "softdc_run does not find its libraries"
sluice_perf rpc --device=softdc0 --duration=1s >perf.log 2>&1 ||
  fail "sluice_perf: $(tail -3 perf.log)"

step "examples/embedding by pkg-config"
make -C embedding OUT=built
greets embedding/built/hello
step "examples/embedding by CMake, shared and static"
cmake -S embedding -B cmake_built >cmake.log || fail "$(cat cmake.log)"
cmake --build cmake_built >cmake.log || fail "$(tail -20 cmake.log)"
greets cmake_built/hello
greets cmake_built/hello_static

step "a program in C, and Python"
# shellcheck disable=SC2046  # words.
gcc -std=c99 -Wall -Wextra -Werror c_api_client.c -o client $(pkg-config --cflags --libs sluice_c)
said=$(./client 127.0.0.1:1) && fail "a client without a server said '$said'"
[[ $said == 'connect: UNAVAILABLE: '* ]] || fail "the client in C said '$said'"
said=$(python3 python/look.py 127.0.0.1:1 --device=softdc0 2>&1) && fail "look.py without a server said '$said'"
[[ $said == *'sluice.Unavailable: UNAVAILABLE: '* ]] || fail "look.py said '$said'"

step "removing them"
apt purge --yes 'libsluice*' 'sluice-*' 'python3-sluice'
[[ $(dpkg-query -W) != *sluice* ]] || fail "packages are left: $(dpkg-query -W '*sluice*')"
left=$(find /usr /etc -xdev \( -name '*sluice*' -o -name '*softdc*' \) || true)
[[ -z $left ]] || fail "files are left: $left"
step "nothing is left"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: embedding_test.sh cmake|pkg_config
# Installs the staged prefix, and builds and runs examples/embedding against it outside of the tree.
set -euo pipefail

prefix=$TEST_TMPDIR/prefix
tools/install/copy.sh tools/install/prefix "$prefix"
cp -RL examples/embedding "$TEST_TMPDIR/hello"
cp -RL tests/tools/install/metrics "$TEST_TMPDIR/hello/metrics"
cd "$TEST_TMPDIR/hello"
# Nothing may come from anywhere else.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

fail() {
  echo "$*" >&2
  exit 1
}

# greets PROGRAM: it says what it should, and a refused call is told as one.
greets() {
  local said
  said=$("$1" Ada) || fail "$1 failed"
  [[ $said == 'hello, Ada' ]] || fail "$1 said '$said'"
  said=$("$1" '' 2>&1) && fail "$1 greeted nobody"
  [[ $said == *'INVALID_ARGUMENT: whom shall I greet?'* ]] || fail "$1 said '$said'"
}

# measures PROGRAM: it prints what a scrape gets, and the call that it made is in it.
measures() {
  local said
  said=$("$1") || fail "$1 failed"
  grep -qF 'sluice_server_calls_started_total{' <<<"$said" || fail "$1 said '$said'"
}

case $1 in
  cmake)
    cmake -S . -B built -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build built
    greets built/hello
    greets built/hello_static
    # The archive is enough for the second, and the first finds the library by its run path.
    needed=$(ldd built/hello)
    [[ $needed == *"libsluice.so.0 => $prefix/lib/"* ]] || fail "hello does not use the library: $needed"
    needed=$(ldd built/hello_static)
    [[ $needed != *libsluice* ]] || fail "hello_static needs the library: $needed"
    cmake -S metrics -B built_metrics -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_FLAGS="${warnings[*]}"
    cmake --build built_metrics
    measures built_metrics/metrics
    measures built_metrics/metrics_static
    # A component that is not there is named.
    sed 's/COMPONENTS prometheus/COMPONENTS prometeus/' -i metrics/CMakeLists.txt
    ! cmake -S metrics -B other_metrics -DCMAKE_PREFIX_PATH="$prefix" >other.log 2>&1 || fail "component 'prometeus' was found"
    grep -q "no component 'prometeus'" other.log || fail "$(<other.log)"
    # An interface that may differ is refused.
    sed -i 's/find_package(Sluice 0.1/find_package(Sluice 0.2/' CMakeLists.txt
    ! cmake -S . -B other -DCMAKE_PREFIX_PATH="$prefix" >other.log 2>&1 || fail 'version 0.2 was found'
    grep -q 'requested version "0.2"' other.log || fail "$(<other.log)"
    ;;
  pkg_config)
    make OUT=built
    export LD_LIBRARY_PATH=$prefix/lib
    greets built/hello
    # A program reads what an error says, and may have its own copy of the message.
    mkdir own
    protoc -I"$prefix/include/sluice" --cpp_out=own proto/error_detail.proto
    cat >own/main.cc <<'CODE'
#include "middleware/api/channel.h"
#include "middleware/api/status_detail.h"
#include "proto/error_detail.pb.h"

int main() {
  const absl::Status status = sluice::Channel::Connect("no address").status();
  const auto detail = sluice::DetailOf(status);
  sluice::ErrorDetail own;
  const auto payload = status.GetPayload("type.googleapis.com/sluice.ErrorDetail");
  const bool same = payload.has_value() && own.ParseFromString(std::string(*payload)) && detail.has_value() &&
                    own.layer() == detail->layer() && own.cause() == detail->cause() && !own.layer().empty();
  return same && !sluice::IsRetrySafe(absl::OkStatus()) && sluice::ErrorDetail::descriptor() != nullptr ? 0 : 1;
}
CODE
    # shellcheck disable=SC2046  # words.
    g++ -std=c++20 -Iown own/main.cc own/proto/error_detail.pb.cc $(pkg-config --cflags --libs sluice) -o own/main
    own/main || fail 'a program with its own copy of error_detail.proto does not read an error'
    # The programs stand alone.
    said=$(env -u LD_LIBRARY_PATH "$prefix/bin/sluice_info" --help)
    [[ $said == *sluice_info* ]] || fail "sluice_info --help said '$said'"
    env -u LD_LIBRARY_PATH "$prefix/bin/softdc_run" true || fail 'softdc_run does not find its library'
    # shellcheck disable=SC2046  # words.
    # Metrics are a library of their own, and what needs none does not load it.
    g++ -std=c++20 "${warnings[@]}" $(pkg-config --cflags sluice_prometheus) metrics/metrics.cc -o built/metrics $(pkg-config --libs sluice_prometheus)
    measures built/metrics
    [[ $(ldd built/hello) != *prometheus* ]] || fail "hello needs prometheus-cpp"
    # What a program instantiates has no warnings either.
    # shellcheck disable=SC2046  # words.
    g++ -std=c++20 -fsyntax-only "${warnings[@]}" -Ibuilt $(pkg-config --cflags sluice) hello.cc
    ;;
  *) fail "usage: $0 cmake|pkg_config" ;;
esac

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: prefix.sh --prefix=FOLDER
# Builds and copies Sluice to FOLDER/{include/sluice,lib,bin,share/man}, for projects that find it by pkg-config or CMake. DESTDIR
# is honoured: files go below it, for a package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

prefix=
for argument in "$@"; do
  case $argument in
    --prefix=?*) prefix=${argument#--prefix=} ;;
    *) die "'$argument' is not understood; usage: ./dev install --prefix=/usr/local" ;;
  esac
done
[[ $prefix == /* ]] || die "the prefix has to be an absolute path, and '$prefix' is not: try --prefix=$PWD/$prefix"
target=${DESTDIR:-}${prefix%/}
if ! mkdir -p "$target" 2>/dev/null || [[ ! -w $target ]]; then
  die "$target can't be written: run as root, or take a prefix of your own, --prefix=$HOME/sluice"
fi

tools/dev/install.sh
step "building what is installed"
bazel build //tools/install:prefix
tools/install/copy.sh bazel-bin/tools/install/prefix "$target"
step "installed in $target"

case :${LD_LIBRARY_PATH:-}:$(ldconfig -v 2>/dev/null | sed -n 's/^\(\/[^:]*\):.*/\1/p' | paste -sd:): in
  *":${prefix%/}/lib:"*) step "run ldconfig (as root), so that programs find libsluice.so.0" ;;
  *) step "programs find libsluice.so.0 by a run path (CMake sets one) or by LD_LIBRARY_PATH=${prefix%/}/lib" ;;
esac

# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev and the scripts beside it.

# Bazel keeps its output below the home directory; cron jobs and chroots often have none set.
export HOME=${HOME:-/root}

step() { printf '==> %s\n' "$*" >&2; }
die() {
  printf 'dev: %s\n' "$*" >&2
  exit 1
}

# Our C++ files. Golden files are read by tests, not by people.
cxx_files() {
  find benchmarks examples middleware tests tools transport \
    -path '*/testdata/*' -prune -o -type f \( -name '*.h' -o -name '*.cc' \) -print 2>/dev/null | sort
}

# Removes from Bazel's cache of results (.bazelrc) what nobody read for two weeks.
prune_disk_cache() {
  local cache=$HOME/.cache/sluice/bazel/
  [[ ! -d $cache ]] || find "$cache" -type f -atime +14 -delete
}

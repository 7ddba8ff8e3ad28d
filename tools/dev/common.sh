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

# Our C++ files, without golden files, which are data of tests.
cxx_files() {
  find benchmarks examples middleware tests tools transport \
    -path '*/testdata/*' -prune -o -type f \( -name '*.h' -o -name '*.cc' \) -print | sort
}

# lines_of ARRAY COMMAND...: reads into ARRAY the lines that COMMAND writes. Fails if COMMAND fails or writes nothing: from half of a
# list nothing would be proved.
lines_of() {
  local -n lines=$1
  shift
  local text
  if ! text=$("$@") || [[ -z $text ]]; then
    printf 'dev: no list: %s\n' "$*" >&2
    return 1
  fi
  # shellcheck disable=SC2034 # the caller's
  mapfile -t lines <<<"$text"
}

# Removes from Bazel's cache of results (.bazelrc) what nobody read for two weeks.
prune_disk_cache() {
  local cache=$HOME/.cache/sluice/bazel/
  [[ ! -d $cache ]] || find "$cache" -type f -atime +14 -delete
}

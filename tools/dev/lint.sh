#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: lint.sh [--all | file.cc...]
# clang-tidy (.clang-tidy) on the .cc files that differ from origin/main, with the headers that they include.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh clang-tidy git

changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || {
    cxx_files
    return
  }
  git diff --name-only "$base" && git ls-files --others --exclude-standard
}

sources() { cxx_files | grep '\.cc$'; }
files=() all=()
case ${1:-} in
  --all) lines_of files sources ;;
  '')
    lines_of all sources
    names=$(changed) || die "git does not say what has changed"
    mapfile -t files < <(comm -12 <(sort -u <<<"$names") <(printf '%s\n' "${all[@]}"))
    ;;
  *) files=("$@") ;;
esac
[[ ${#files[@]} -gt 0 ]] || {
  step "lint: nothing changed"
  exit 0
}

step "lint: building what the sources include (generated headers)"
bazel build //...
step "lint: ${#files[@]} sources"
tools/dev/compile_commands.sh
ours="^$PWD/(\\./)?(benchmarks|examples|middleware|tests|tools|transport)/"
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet --header-filter="$ours" 2>/dev/null

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: man_page_test.sh PROGRAM...
# Each program that is installed has a manual page, and each of its options is in it.
set -euo pipefail
man_page=tools/install/man_page.sh

fail() {
  echo "man_page_test: $*" >&2
  exit 1
}

given=$(printf '%s\n' "${@##*/}" | sort)
installed=$(sed -nE 's|.*"//tools(/[a-z]+)?:([a-z_]+)": "bin".*|\2|p' tools/install/BUILD | sort)
[[ -n $installed && $installed == "$given" ]] || fail "installed are ${installed//$'\n'/ }, tested are ${given//$'\n'/ }"
[[ $installed == "$($man_page --list)" ]] || fail "not all that is installed has a page"

for program in "$@"; do
  name=${program##*/}
  page=$TEST_TMPDIR/$name.1
  "$man_page" "$program" >"$page"
  for section in NAME DESCRIPTION "EXIT STATUS"; do
    grep -qxF ".SH $section" "$page" || fail "$name has no $section"
  done
  # "sluice_perf rpc --help": words of its help that have options of their own.
  helps=("")
  mapfile -t -O 1 helps < <("$program" --help | sed -nE "s/.* $name ([a-z]+) .*\[options\].*/\1/p")
  options=0
  for word in "${helps[@]}"; do
    while read -r option; do
      grep -qF "\\fB${option//-/\\-}" "$page" || fail "$name: $word $option is not in its page"
      options=$((options + 1))
    done < <("$program" ${word:+"$word"} --help | sed -nE 's/^  (--[a-z_]+).*/\1/p')
  done
  [[ $options -ge 3 ]] || fail "$name: only $options options were found"
  if command -v groff >/dev/null; then
    complaints=$(groff -K utf8 -man -ww -Tutf8 "$page" 2>&1 >/dev/null)
    [[ -z $complaints ]] || fail "$name: $complaints"
  fi
done

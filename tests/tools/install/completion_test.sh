#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: completion_test.sh FOLDER      (with the programs)
# Completion in bash offers each option of --help, the words of a program, and files after "=".
set -euo pipefail
programs=$PWD/$1
completion=tools/install/_sluice
# shellcheck source=tools/install/_sluice
source "$completion"
mkdir -p "$TEST_TMPDIR/files"

fail() {
  echo "completion_test: $*" >&2
  exit 1
}

# offers "EXPECTED" WORD...: the last word is completed.
offers() {
  local expected=$1
  shift
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMP_WORDS[0]=$programs/$1
  _sluice "${COMP_WORDS[0]}"
  local offered
  offered=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | paste -sd' ')
  [[ $offered == "$expected" ]] || fail "'$*': offered '$offered', expected '$expected'"
}

offers '--timeout=' sluice_call --t
offers '--secret_file= --server=' sluice_call --se
offers 'describe list' sluice_call ''
offers 'describe' sluice_call de
offers '' sluice_call describe ''
offers 'flow rpc serve sink' sluice_perf ''
offers '--listen=' sluice_perf serve --li
offers '--interval=' sluice_stat --in
offers '--config' softdc_run --c
sluice_unlikely_name() { :; }
offers 'sluice_unlikely_name' softdc_run sluice_unlikely
offers '' sluice_info --nothing

# Each option of each program.
for name in sluice_call sluice_info sluice_stat; do
  offers "$("$programs/$name" --help | sed -nE 's/^  (--[a-z_]+).*/\1=/p' | LC_ALL=C sort | paste -sd' ')" "$name" --
done

# Files.
cd "$TEST_TMPDIR/files"
touch one.json
offers 'one.json' sluice_stat --json = one
offers 'one.json' sluice_stat --json =
offers 'one.json' softdc_run --config one

# Each installed program has it.
for name in $("$OLDPWD/tools/install/man_page.sh" --list); do
  complete -p "$name" >/dev/null || fail "$name has no completion"
done

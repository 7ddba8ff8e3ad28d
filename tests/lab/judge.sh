# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# How the lab judges its scenarios. Sourced by scenarios.sh and two_machines.sh. A scenario adds to $missing what was not as expected, and sets
# $said to what it has shown. SLUICE_LAB_ONLY selects the scenarios whose names match it.
only=${SLUICE_LAB_ONLY:-}
passed=0 failed=0 missing='' said=''

selected() { [[ -z $only || $1 =~ $only ]]; }

# value FILE NAME: V of the last NAME=V in the file.
value() { grep -oE "\b$2=[^ ]+" "$1" | tail -n 1 | cut -d= -f2; }
# has FILE NAME=VALUE...: the last value of each name in the file is this one.
has() {
  local file=$1 word
  shift
  for word in "$@"; do
    [[ ${word#*=} && $(value "$file" "${word%%=*}") == "${word#*=}" ]] || missing+=" ${word} (${file##*/});"
  done
}
# want VALUE WHAT: the value is not empty.
want() { [[ $1 ]] || missing+=" $2;"; }

# judge NAME SERVER CLIENT: counts the scenario, and prints its line; if it failed, also the two files.
judge() {
  want "$said" "what was shown"
  if [[ -z $missing ]]; then
    ((++passed))
    echo "pass     $1: $said"
  else
    ((++failed))
    echo "FAIL     $1:$missing"
    sed 's/^/    server: /' "$2"
    sed 's/^/    client: /' "$3"
  fi
  missing='' said=''
}

# conclude WHERE: prints the counts, and ends the script: 1 if a scenario failed, 3 if there was none.
conclude() {
  echo "lab: $1 $(uname -r), $passed passed, $failed failed"
  [[ $passed -gt 0 || $failed -gt 0 ]] || exit 3
  [[ $failed -eq 0 ]] || exit 1
  exit 0
}

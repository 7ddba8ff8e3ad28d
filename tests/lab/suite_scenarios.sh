# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scenarios of the lab that need one device: the conformance suite, and what ./dev hardware asks. Sourced by scenarios.sh, whose wire and
# words they use.
suite=${SLUICE_LAB_SUITE:?the conformance suite} probe=${SLUICE_LAB_PROBE:?the hardware probe}
differs=${SLUICE_LAB_DIFFERS:?the list of cases that do not pass}
export CONFORMANCE_DEVICE=rxe0

# cases PATTERN FILTER: runs them, and leaves "pass NAME", "skip NAME: WHY" or "fail NAME" of each in /tmp/cases; 0 when the program ended by
# itself. PATTERN is for the log.
cases() {
  local result
  timeout 240 "$suite" "--gtest_filter=$2" >"/tmp/suite.$1" 2>&1
  result=$?
  awk '
    / RUN  / { name = $NF; sub("^Device/", "", name); sub("/native$", "", name); why = ""; wanted = 0; next }
    / Skipped$/ || /: Skipped/ { wanted = 1; next }
    wanted && NF { why = $0; wanted = 0; next }
    / OK \] / { print "pass " name; name = ""; next }
    /SKIPPED \] Device/ && name { print "skip " name ": " why; name = ""; next }
    / FAILED  \] / && name { print "fail " name; name = ""; next }
    END { if (name) print "fail " name " (the program ended)" }
  ' "/tmp/suite.$1" >>/tmp/cases
  [[ $result -le 1 ]]
}

conformance_suite() {
  local listed alone filter name left
  # Each line of the list: a case, then why; "alone" before those that end the program.
  listed=$(awk '!/^#/ && NF { print $1 == "alone" ? $2 : $1 }' "$differs")
  alone=$(awk '$1 == "alone" { print $2 }' "$differs")
  filter=$(for name in $listed; do printf ':*/%s/native' "$name"; done)
  : >/tmp/cases
  CONFORMANCE_PATIENCE_MS=20000 cases most "*/native:-${filter#:}" || missing+=" the suite ended early"
  passed_cases=$(grep -c '^pass' /tmp/cases)
  skipped_cases=$(grep -c '^skip' /tmp/cases)
  while read -r _ name left; do missing+=" $name fails: list it in ${differs##*/} or mend it;"; done < <(grep '^fail' /tmp/cases)
  [[ $passed_cases -ge 50 ]] || missing+=" only $passed_cases cases passed"
  grep '^skip' /tmp/cases | sed 's/^[^:]*: //' | sort | uniq -c | sort -rn | sed 's/^/    skipped: /'
  # What does not pass is still so, or the list is out of date.
  : >/tmp/cases
  filter=$(for name in $listed; do [[ " ${alone//$'\n'/ } " == *" $name "* ]] || printf ':*/%s/native' "$name"; done)
  CONFORMANCE_PATIENCE_MS=2000 cases listed "${filter#:}" || missing+=" a listed case ended the suite: say alone"
  # The shell would tell of the signal that ends it.
  for name in $alone; do CONFORMANCE_PATIENCE_MS=2000 cases alone "*/$name/native"; done 2>/dev/null
  while read -r left name; do missing+=" $name is listed and does not fail ($left);"; done < <(grep -v '^fail' /tmp/cases)
  for name in $listed; do grep -qE "^[a-z]+ $name( |:|$)" /tmp/cases || missing+=" $name is listed and there is no such case;"; done
  : >/tmp/server
  [[ -z $missing ]] || tail -n 60 /tmp/suite.most >/tmp/client
  said="$passed_cases cases pass, $(wc -w <<<"$listed") differ as listed, $skipped_cases need what the device has not"
}

# With --all: each case in a process of its own. One that passes counts if the device sent packets meanwhile.
conformance_cases() {
  local filter name before count=0 silent=0 skipped=0 seen=0
  filter=$(awk '!/^#/ && NF { printf ":*/%s/native", ($1 == "alone" ? $2 : $1) }' "$differs")
  : >/tmp/server
  : >/tmp/client
  "$suite" --gtest_list_tests --gtest_filter="*/native:-${filter#:}" | awk '/^[^ ].*\./ { suite = $1 } /^  / { print suite $1 }' >/tmp/cases
  while read -r name; do
    before=$(sent_by rxe0)
    ((++seen % 50)) || echo "         $seen cases, $count of them with packets"
    if ! CONFORMANCE_PATIENCE_MS=20000 timeout 120 "$suite" --gtest_filter="$name" </dev/null >/tmp/case 2>&1; then
      missing+=" $name fails when it is alone;"
      tail -n 8 /tmp/case >>/tmp/client
    elif grep -qF '[  SKIPPED ]' /tmp/case; then
      ((++skipped))
    elif ! grep -qF '[  PASSED  ] 1 test' /tmp/case; then
      missing+=" $name does not run;"
    elif [[ $(sent_by rxe0) -gt $before ]]; then
      ((++count))
    else
      ((++silent))
    fi
  done </tmp/cases
  [[ $count -ge 38 ]] || missing+=" only $count cases that use the device passed;"
  said="$count cases that use the device pass, $silent pass without it, $skipped need what the device has not"
}

hardware_probes() {
  : >/tmp/server
  timeout 120 "$probe" --device=rxe0 --report=/tmp/report >/tmp/client 2>&1 || missing+=" status $?"
  want "$(grep -c '^DIFFERS    dc ' /tmp/report.txt | grep -x 1)" "no DC is said once"
  want "$(grep -x 'features { dc: false.*}' /tmp/report.dials)" "a dial for it"
  # The far end reaches a device by its addresses.
  timeout 20 "$probe" --device=rxe0 --only=none --listen=10.0.0.2:7300 --wait=1s >/tmp/listen 2>&1
  want "$(grep '10.0.0.2 is no address of rxe0, port 1' /tmp/listen)" "the address of another device is refused"
  [[ -z $missing ]] || cat /tmp/report.txt /tmp/listen >>/tmp/client
  # shellcheck disable=SC2034 # scenarios.sh prints it
  said=$(grep ' probes: ' /tmp/report.txt)
}

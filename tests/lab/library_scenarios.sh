# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scenarios of the lab that run the library's own tests and its tutorial, as they are, on soft RoCE. Sourced by scenarios.sh, whose words they use.
#
# The tests ask for the device softdc0 and the address 127.0.0.1. So a soft RoCE device has that name here: a device of the kernel precedes
# softdc's of the same name (Device::Open). address_shim.so gives RDMA_CM the device's address instead of 127.0.0.1. Fixtures that use softdc's
# verbs without a name take the system's with SLUICE_TEST_PROVIDER (tests/support/provider.h).
library_differs=/tmp/library_differs.txt
tests_device=softdc0

# The device of the tests, on a wire of its own.
tests_wire() {
  [[ ! -e /sys/class/infiniband/$tests_device ]] || return 0
  ip link add near type veth peer name far
  ip addr add 10.0.1.1/24 dev near
  ip link set near up
  ip link set far up
  rdma link add "$tests_device" type rxe netdev near
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    grep -q ACTIVE "/sys/class/infiniband/$tests_device/ports/1/state" && break
    sleep 0.05
  done
  mkdir -p /tmp/tests
}
on_tests_device() {
  TEST_TMPDIR=/tmp/tests SLUICE_TEST_PROVIDER=native SLUICE_LAB_ADDRESS=10.0.1.1 LD_PRELOAD=/tmp/address_shim.so timeout "$@"
}

tutorial_over_rc() {
  local before
  tests_wire
  before=$(sent_by $tests_device)
  : >/tmp/server
  on_tests_device 60 "$programs/tutorial" $tests_device >/tmp/client 2>&1 || missing+=" status $?"
  grep -q '^ACME is at' /tmp/client && grep -q '^a stop: CANCELLED' /tmp/client || missing+=" what the tutorial prints"
  [[ $(sent_by $tests_device) -gt $before ]] || missing+=" packets"
  said="the tutorial's calls and streams, $(($(sent_by $tests_device) - before)) packets"
}

# Lines "PROGRAM CASE" of the cases that are to pass.
cases_of() {
  local program=$1 filter=$2
  on_tests_device 60 "$programs/$program" --gtest_list_tests --gtest_filter="$filter" 2>/dev/null | awk -v program="$program" '
    /^[^ ].*\./ { suite = $1; next }
    /^  / { print program, suite $1 }'
}
# listed PROGRAM CASE: whether library_differs.txt has it, with its reason.
listed() {
  awk -v program="$1" -v name="$2" '
    /^#/ || NF == 0 { next }
    $1 == program {
      pattern = $2
      gsub(/[.]/, "[.]", pattern); gsub(/\*/, ".*", pattern)
      if (name ~ "^" pattern "$") found = 1
    }
    END { exit !found }' "$library_differs"
}

# The suites that run without --all.
some_cases() {
  cases_of api_tests 'PollersTest.*:AuthenticationTest.*:Driving/ForkedServerTest.*:ForkedMessengerTest.*'
  cases_of endpoint_tests 'EndpointConnect.T*:EndpointSend.*:EndpointReserve.*:EndpointClose.*'
}
# Each case runs in a process of its own. One that passes counts if the device sent packets meanwhile.
library_tests() {
  local program name before count=0 silent=0 differ=0
  tests_wire
  : >/tmp/server
  : >/tmp/client
  if [[ -n ${SLUICE_LAB_ALL:-} ]]; then
    { cases_of api_tests '*'; cases_of endpoint_tests '*'; } >/tmp/library_cases
  else
    some_cases >/tmp/library_cases
  fi
  while read -r program name; do
    if listed "$program" "$name"; then
      ((++differ))
      continue
    fi
    before=$(sent_by $tests_device)
    if ! on_tests_device 60 "$programs/$program" --gtest_filter="$name" >/tmp/case 2>&1 </dev/null; then
      missing+=" $program $name fails: mend it, or list it in ${library_differs##*/};"
      { echo "$program $name"; tail -n 8 /tmp/case; } >>/tmp/client
    elif [[ $(sent_by $tests_device) -gt $before ]]; then
      ((++count))
    else
      ((++silent))
    fi
  done </tmp/library_cases
  [[ $count -ge 10 ]] || missing+=" only $count cases that use the device passed"
  # shellcheck disable=SC2034 # scenarios.sh prints it
  said="$count cases that use the device pass, $silent pass without it, $differ differ as listed"
}

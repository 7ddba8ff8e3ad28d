# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scenarios of the lab that run the library's own tests and its tutorial, as they are, on soft RoCE. Sourced by scenarios.sh, whose words they use.
#
# The tests ask for the device softdc0 and the address 127.0.0.1. So a soft RoCE device has that name here: a device of the kernel precedes
# softdc's of the same name (Device::Open). address_shim.so gives RDMA_CM the device's address instead of 127.0.0.1. Fixtures that use softdc's
# verbs without a name take the system's with SLUICE_TEST_PROVIDER (tests/support/provider.h), and those with a network in memory take a device
# with SLUICE_TEST_STACK (tests/support/fake_stack.h).
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
  TEST_TMPDIR=/tmp/tests SLUICE_TEST_PROVIDER=native SLUICE_TEST_STACK=device SLUICE_LAB_ADDRESS=10.0.1.1 LD_PRELOAD=/tmp/address_shim.so timeout "$@"
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

# Lines "PROGRAM CASE" of the cases that a pattern of --gtest_filter names.
cases_of() {
  local program=$1 pattern=$2
  on_tests_device 60 "$programs/$program" --gtest_list_tests --gtest_filter="$pattern" | awk -v program="$program" '
    /^[^ ].*\./ { suite = $1; next }
    /^  / { print program, suite $1; found = 1 }
    END { exit !found }' || missing+=" cases of $program that match $pattern;"
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

# passes PROGRAM CASE LIMIT_S: whether it runs, and is not skipped.
passes() {
  on_tests_device "$3" "$programs/$1" --gtest_filter="$2" >/tmp/case 2>&1 </dev/null && grep -qF '[  PASSED  ] 1 test' /tmp/case &&
    ! grep -qF '[  SKIPPED ]' /tmp/case
}
# run_cases LEAST: runs the cases of /tmp/library_cases, each in a process of its own. One that passes counts if the device sent packets
# meanwhile; at least LEAST must. A listed case that passes is an error. Some of these wait for ever, so they get less time.
run_cases() {
  local program name before least=$1 count=0 silent=0 differ=0 skipped=0 seen=0
  : >/tmp/server
  : >/tmp/client
  while read -r program name; do
    before=$(sent_by $tests_device)
    ((++seen % 100)) || echo "         $seen cases, $count of them with packets"
    if listed "$program" "$name"; then
      ((++differ))
      if passes "$program" "$name" 10; then missing+=" $program $name is listed, and passes;"; fi
    elif passes "$program" "$name" 180; then
      if [[ $(sent_by $tests_device) -gt $before ]]; then ((++count)); else ((++silent)); fi
    elif grep -qF '[  SKIPPED ]' /tmp/case; then
      ((++skipped))
    else
      missing+=" $program $name fails: mend it, or list it in ${library_differs##*/};"
      echo "         fails: $program $name"
      { echo "$program $name"; tail -n 8 /tmp/case; } >>/tmp/client
    fi
  done </tmp/library_cases
  [[ $count -ge $least ]] || missing+=" only $count cases that use the device passed"
  # shellcheck disable=SC2034 # scenarios.sh prints it
  said="$count cases that use the device pass, $silent pass without it, $skipped are skipped, $differ differ as listed"
}
# list_cases PROGRAM PATTERN...: adds those to the list.
list_cases() {
  local program=$1 pattern
  shift
  for pattern in "$@"; do cases_of "$program" "$pattern"; done >>/tmp/library_cases
}

# The tests of the API.
library_tests() {
  local program least=10
  tests_wire
  : >/tmp/library_cases
  if [[ ${SLUICE_LAB_ALL:-} ]]; then
    for program in api_tests {runtime,channel_engine,coroutine_handover,lease_batch,lease_cancel,lease_handover,raw_message}_test; do list_cases "$program" '*'; done
    least=220
  else
    list_cases api_tests 'PollersTest.*' 'AuthenticationTest.*' 'Driving/ForkedServerTest.*' 'ForkedMessengerTest.*' 'MetadataTest.*'
  fi
  run_cases $least
}
# Those of the endpoint.
library_endpoint_tests() {
  local least=5
  tests_wire
  : >/tmp/library_cases
  if [[ ${SLUICE_LAB_ALL:-} ]]; then
    list_cases endpoint_tests '*'
    least=30
  else
    list_cases endpoint_tests 'EndpointSend.*' 'EndpointReserve.*' 'EndpointClose.*' 'EndpointDisconnect.*'
  fi
  run_cases $least
}

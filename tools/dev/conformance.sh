#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: conformance.sh [pattern]
# Runs Debian's own RDMA programs on softdc, client and server as two processes, and judges what they print and how they
# end. Without a pattern every program of conformance_rows.sh runs and docs/conformance.md is written; with one, only
# rows whose programs and arguments match it. Exit status: 0 if every row is as it should be.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

pattern=${1:-}
packages=(ibverbs-utils rdmacm-utils perftest ucx-utils libfabric-bin libfabric-dev openmpi-bin
  libopenmpi-dev)
tools/dev/install.sh "${packages[@]}" || exit 1
step "building softdc_run"
bazel build //tools:softdc_run || exit 1
softdc_run=$PWD/bazel-bin/tools/softdc_run

# A row may take this long; most need a second. Programs that hang are killed with all they started.
readonly limit_s=${SLUICE_CONFORMANCE_LIMIT_S:-240}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
table=$scratch/table
rows=0 passed=0 refused=0 failed=0
next_port=$((10000 + $$ % 20000))  # below those that the kernel gives out
settings=    # SOFTDC_CONFIG of the rows that follow
fixed_port=  # for a program that cannot be told one
environment=()  # more variables, NAME=VALUE, of the rows that follow
least_bytes=    # what both sides of a row have to send through softdc, if it matters

# run NAME COMMAND: its output goes to $scratch/NAME, its exit code to $scratch/NAME.code.
run() {
  local name=$1
  shift
  env ${environment[@]+"${environment[@]}"} SOFTDC_CONFIG="$settings" SOFTDC_TRAFFIC="$scratch/traffic" \
    timeout --kill-after=1 "$limit_s" "$softdc_run" --domain "$domain" -- "$@" \
    >"$scratch/$name" 2>&1 </dev/null
  echo $? >"$scratch/$name.code"
}

# A server listens: on a TCP port (perftest, pingpong), or by a name of its domain (RDMA_CM).
listening() {
  local port_hex
  printf -v port_hex '%04X' "$port"
  grep -qE "^ *[0-9]+: [0-9A-F]+:$port_hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 ||
    grep -qE " 00010000 .*@softdc/[0-9]+/$domain/(cm|udp|ipoib|ib)/$port$" /proc/net/unix
}

# Waits until the server listens or has ended.
await_server() {
  local tries
  for ((tries = 0; tries < limit_s * 20; ++tries)); do
    [[ -e $scratch/server.code ]] && return
    listening && return
    sleep 0.05
  done
}

# What a row wants beyond its commands; reset by each row.
begin_row() {
  ((++rows))
  new_fabric
}

# A port and a fabric that no earlier run used.
new_fabric() {
  ((++next_port))
  port=${fixed_port:-$next_port}
  domain="conformance-$$-$next_port"
  rm -f "$scratch"/server* "$scratch"/client* "$scratch"/traffic
}

# record PROGRAM ARGUMENTS RESULT NOTE
record() {
  printf '| `%s` | %s | %s | %s |\n' "$1" "${2:+\`$2\`}" "$3" "$4" >>"$table"
  printf '%-8s %s %s\n' "$3" "$1" "$2"
}

# finish PROGRAM ARGUMENTS NOTE WRONG: WRONG says what was not as it should be; empty: nothing.
finish() {
  local program=$1 arguments=$2 note=$3 wrong=$4 side
  if [[ -n $wrong ]]; then
    ((++failed))
    record "$program" "$arguments" FAIL "$wrong"
    echo "         $wrong"
    for side in server client; do
      # What went wrong stands anywhere: standard output is buffered, standard error is not.
      grep -m 5 -sniE 'fail|error|could|can.t|unable|abort' "$scratch/$side" | cut -c1-160 | sed "s/^/    $side: line /"
      [[ -e $scratch/$side ]] && tail -8 "$scratch/$side" | cut -c1-160 | sed "s/^/    $side: /" && echo
    done
  elif [[ $expected_server == 0 && $expected_client == 0 ]]; then
    ((++passed))
    record "$program" "$arguments" pass "$note"
  elif [[ -z $note ]]; then
    ((++failed))
    record "$program" "$arguments" FAIL "no reason is given for the exit code that this row expects"
  else
    ((++refused))
    record "$program" "$arguments" "as on a NIC" "$note"
  fi
}

# Appends to `wrong` unless SIDE's output matches the extended regular expression.
expect_output() {
  local side=$1 regex=$2
  grep -qE -- "$regex" "$scratch/$side" || wrong+="${wrong:+; }$side: no line like $regex"
}

expect_code() {
  local side=$1 expected=$2 code
  code=$(<"$scratch/$side.code")
  [[ $code == "$expected" ]] && return
  [[ $code == 124 || $code == 137 ]] && code="$code, killed after $limit_s s"
  wrong+="${wrong:+; }$side: exit code $code"
}

# Libraries above verbs fall back to shared memory or TCP without a word: what they sent has to have gone through the
# device. Each process appends "program requests bytes" when it ends.
expect_traffic() {
  [[ -n $least_bytes ]] || return 0
  local bytes=0
  [[ -e $scratch/traffic ]] && bytes=$(awk '{sum += $3} END {printf "%d", sum}' "$scratch/traffic")
  ((bytes >= least_bytes)) && return
  wrong+="${wrong:+; }$bytes bytes went through softdc, not $least_bytes"
}

selected() { [[ -z $pattern || $1 =~ $pattern ]]; }

# perftest measures the CPU's clock against the wall clock before each report, and ends with exit code 1 when the two do
# not agree well enough, which happens on a busy or virtual machine whatever the device. Such a run says nothing.
readonly most_runs=5
clock_unmeasured() { grep -qs "Can't produce a report" "$scratch/server" "$scratch/client"; }

# one PROGRAM ARGUMENTS REGEX [NOTE [CODE]]: a program that needs no partner.
one() {
  local program=$1 arguments=$2 regex=$3 note=${4:-} wrong=
  expected_server=0 expected_client=${5:-0}
  selected "$program $arguments" || return 0
  begin_row
  # shellcheck disable=SC2086  # arguments are words
  run client "$program" $arguments
  expect_code client "$expected_client"
  expect_output client "$regex"
  expect_traffic
  finish "$program" "$arguments" "$note" "$wrong"
}

run_two() {
  local server=$1 client=$2
  # shellcheck disable=SC2086  # commands are words
  run server ${server//%P/$port} &
  local server_job=$!
  await_server
  # shellcheck disable=SC2086
  run client ${client//%P/$port}
  wait "$server_job"
}

# two SERVER CLIENT SERVER_REGEX CLIENT_REGEX [NOTE [SERVER_CODE CLIENT_CODE]]
# %P in a command is a port that nobody else uses.
two() {
  local server=$1 client=$2 server_regex=$3 client_regex=$4 note=${5:-} wrong=
  expected_server=${6:-0} expected_client=${7:-0}
  selected "$server $client" || return 0
  begin_row
  run_two "$server" "$client"
  local runs
  for ((runs = 1; runs < most_runs; ++runs)); do
    clock_unmeasured || break
    echo "again    ${client%% *}: it could not measure the CPU's clock"
    new_fabric
    run_two "$server" "$client"
  done
  expect_code server "$expected_server"
  expect_code client "$expected_client"
  [[ -z $server_regex ]] || expect_output server "$server_regex"
  [[ -z $client_regex ]] || expect_output client "$client_regex"
  expect_traffic
  local shown programs=${server%% *}
  shown=$(sed -E 's/^[^ ]+//; s/ -[pPB] %P//; s/ %P//; s/ (-[as] )?127\.0\.0\.1//; s/ +/ /g; s/^ //; s/ $//' <<<"$client")
  [[ $programs == "${client%% *}" ]] || programs="$programs, ${client%% *}"
  finish "$programs" "$shown" "$note" "$wrong"
}

# shellcheck source=tools/dev/conformance_rows.sh
source tools/dev/conformance_rows.sh

summary="$rows rows: $passed passed, $refused as on a NIC, $failed failed"
if [[ -z $pattern ]]; then
  {
    cat tools/dev/conformance_head.md
    echo
    echo "Programs: $(dpkg-query -W -f='${Package} ${Version}\n' "${packages[@]}" | paste -sd, | sed 's/,/, /g')."
    echo
    cat "$table"
    echo
    echo "$summary."
  } >docs/conformance.md
fi
echo "$summary"
[[ $failed -eq 0 && $rows -gt 0 ]]

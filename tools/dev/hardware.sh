#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hardware.sh [--listen HOST:PORT | --peer HOST:PORT] [--device NAME] [--cpu N] [--out DIR]
# Runs on a host with a NIC everything that says how the device behaves, and writes one report; docs/hardware.md describes it. Both sides
# build first; the rest takes at most 15 minutes and changes nothing on the host. Exit status: 0 if there is a report, whatever is in it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

role=alone address='' device=auto cpu='' out=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
    --listen | --peer) [[ $role == alone ]] || die "--listen and --peer: one of them on each host" ;;
    --device | --cpu | --out) ;;
    *) die "usage: ./dev hardware [--listen HOST:PORT | --peer HOST:PORT] [--device NAME] [--cpu N] [--out DIR]" ;;
  esac
  [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"
  case $1 in
    --listen) role=listen address=$2 ;;
    --peer) role=peer address=$2 ;;
    --device) device=$2 ;;
    --cpu) cpu=$2 ;;
    --out) out=$2 ;;
  esac
  shift 2
done
[[ $role == alone || $address =~ ^.+:[0-9]+$ ]] || die "--$role=$address: HOST:PORT is wanted"
[[ $cpu =~ ^[0-9]*$ ]] || die "--cpu=$cpu: the number of a CPU is wanted"
# The server's, and the client's. Alone both are on this host.
server_cpu=${cpu:-1} client_cpu=${cpu:-0}
[[ $role != alone || $server_cpu != "$client_cpu" ]] || client_cpu=$((server_cpu == 0))
out=${out:-hardware-$(hostname)-$role}
port=${address##*:}
host=${address%:*}

# Programs that are built already, as a test has them.
bin=${SLUICE_HARDWARE_BIN:-}
if [[ -z $bin ]]; then
  bin=$PWD/bazel-bin
  tools/dev/install.sh || exit 1
  step "building"
  bazel build //tools/... //examples/... //tests/transport/softdc/conformance:conformance_test || exit 1
fi
probe=$bin/tools/hardware/hardware_probe

# "device NIC ADDRESS", or why there is none.
found=$("$probe" --device="$device" --only=none) || exit 1
read -r _ nic own < <(grep '^device ' <<<"$found") # NIC: NAME or NAME:PORT
nic_port=1
[[ $nic != *:* ]] || nic_port=${nic##*:}
[[ $role != alone ]] || host=${own:-127.0.0.1} port=${SLUICE_HARDWARE_PORT:-7490}
bed=native
run=()
case $nic in softdc*) bed=shm run=("$bin/tools/softdc_run") ;; esac

mkdir -p "$out" || exit 1
steps=$out/steps
: >"$steps" || die "$out can't be written to: give another folder with --out"
out=$(cd "$out" && pwd)
steps=$out/steps
report=$out/report
rm -f "$report".{txt,json,dials} "$out/probes.log" # of an earlier run
server=''
# shellcheck disable=SC2046
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# record NAME RESULT SECONDS [LOG [PATTERN]]: a line of the report, with the lines of the log that match.
record() {
  local figures=''
  if [[ -n ${4:-} ]]; then
    figures=$4.figures
    grep -aE "${5:-.}" "$4" | tail -12 >"$figures"
  fi
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$figures" >>"$steps"
  step "$1: $2"
}

verdict() { # of an exit code
  case $1 in
    0) echo ok ;;
    124 | 137) echo "failed (it took too long)" ;;
    *) echo "failed (exit code $1)" ;;
  esac
}

# limited SECONDS LOG COMMAND...: runs it for at most so long. In the background: Ctrl-C ends a `wait` at once, but not the program, which
# has a process group of its own.
limited() {
  local limit=$1 log=$2
  shift 2
  timeout --kill-after=2 "$limit" "$@" >"$log" 2>&1 </dev/null &
  wait $!
}

# try NAME SECONDS PATTERN COMMAND...: a step that runs it for at most so long.
try() {
  local name=$1 limit=$2 pattern=$3 start=$SECONDS code
  local log=$out/${name// /-}.log
  shift 3
  limited "$limit" "$log" "$@"
  code=$?
  grep -qaE "$pattern" "$log" || pattern=.
  record "$name" "$(verdict "$code")" $((SECONDS - start)) "$log" "$pattern"
}

# Both sides wait here for each other. The first wait is long: a person starts the other side. A side that did not come once is not
# waited for again.
gone=''
meet() {
  [[ $role != alone ]] || return 0
  [[ -z $gone ]] || return 1
  limited $((${1:-100} + 5)) "$out/meet.log" "$probe" --device="$nic" --only=none "--$role=$address" --wait="${1:-100}s" && return
  gone=yes
  return 1
}

# Until the server says that it listens, or has a TCP port as perftest, or has ended.
await_server() {
  local tries port_hex
  printf -v port_hex '%04X' $((port + 6))
  for ((tries = 0; tries < 100; ++tries)); do
    ! grep -qa 'listening on' "$1" || return 0
    ! grep -qE "^ *[0-9]+: [0-9A-F]+:$port_hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 || return 0
    kill -0 "$server" 2>/dev/null || return 0
    sleep 0.1
  done
}

# pair NAME PATTERN SERVER... -- CLIENT...: the server where --listen was given, the client at the other host. Where the program that $needs
# names is missing it is not tried; the other side hears of that by the failure of its own.
pair() {
  local name=$1 pattern=$2 start=$SECONDS serve=() ask=()
  local log=$out/${name// /-}.log
  shift 2
  while [[ $1 != -- ]]; do
    serve+=("$1")
    shift
  done
  shift
  ask=("$@")
  if [[ -n ${needs:-} ]] && ! command -v "$needs" >/dev/null; then
    meet && meet
    record "$name" "not tried: $needs is not installed" 0
    return
  fi
  server=''
  if [[ $role != peer ]]; then
    # Longer than meet (105 s) and the client (45 s) together: it is ended below.
    timeout --kill-after=2 160 "${serve[@]}" >"$log.server" 2>&1 </dev/null &
    server=$!
    await_server "$log.server"
  fi
  local met=ok
  meet || met=no
  if [[ $met == no ]]; then
    record "$name" "not tried: the other side did not come" $((SECONDS - start)) "$out/meet.log"
  elif [[ $role == listen ]]; then
    meet || true
    record "$name" "served" $((SECONDS - start))
  else
    try "$name" 45 "$pattern" "${ask[@]}"
    meet || true
  fi
  if [[ -n $server ]]; then
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    server=''
  fi
}

step "device $nic, $role; the report goes to $out"
if ! meet 600; then
  cat "$out/meet.log" >&2
  exit 1
fi
begin=$SECONDS
try "sluice_info --check" 30 . "$bin/tools/sluice_info" --check
try "conformance suite" 240 '^\[  (FAILED|PASSED)|^\[  SKIPPED \] [0-9]|tests ran' env CONFORMANCE_DEVICE="${nic%%:*}" \
  "$bin/tests/transport/softdc/conformance/conformance_test" "--gtest_filter=*/$bed" --gtest_brief=1

others=()
[[ $role == alone ]] || others=("--$role=$address" --wait=20s)
# The conformance suite may take the other side longer; that is no time of the probes.
code=1 start=$SECONDS
if meet 250; then
  start=$SECONDS
  step "probes"
  limited 300 "$out/probes.log" "$probe" --device="$nic" --report="$report" ${others[@]+"${others[@]}"}
  code=$?
else
  cp "$out/meet.log" "$out/probes.log"
fi
[[ $code -eq 0 ]] || gone=yes
record "probes" "$(verdict "$code")" $((SECONDS - start)) "$out/probes.log" '^hardware_probe:'

at() { echo "$host:$((port + $1))"; }
examples=$bin/examples
pair "example echo" . "$examples/echo/echo_server" "--listen=$(at 1)" "--device=$nic" -- \
  "$examples/echo/echo_client" "--server=$(at 1)" "--device=$nic"
pair "example kv_store" . "$examples/kv_store/kv_server" "--listen=$(at 2)" "--device=$nic" -- \
  "$examples/kv_store/kv" "--server=$(at 2)" "--device=$nic" put key value
pair "example blockstore" . "$examples/blockstore/blockstore_server" "--listen=$(at 3)" "--device=$nic" -- \
  "$examples/blockstore/blockstore_client" "--server=$(at 3)" "--device=$nic"
pair "example flow" . "$examples/flow/publisher" "--listen=$(at 4)" "--device=$nic" --ticks=100000 --subscribers=1 -- \
  "$examples/flow/subscriber" "--publisher=$(at 4)" "--device=$nic"

perf=$bin/tools/sluice_perf
pair "sluice_perf rpc" . "$perf" serve "--listen=$(at 5)" "--device=$nic" "--cpu=$server_cpu" -- \
  "$perf" rpc "--server=$(at 5)" "--device=$nic" "--cpus=$client_cpu" --size=64 --duration=5s
lat=(${run[@]+"${run[@]}"} ib_send_lat -F -d "${nic%%:*}" -i "$nic_port" -p $((port + 6)) -s 64 -n 5000)
needs=ib_send_lat pair "perftest ib_send_lat" '^ *(#bytes|64 )' taskset -c "$server_cpu" "${lat[@]}" -- \
  taskset -c "$client_cpu" "${lat[@]}" "$host"

if [[ -e $report.json ]]; then
  "$probe" --merge "$report" --steps "$steps" || exit 1
  cat "$report.txt"
  step "took $((SECONDS - begin)) s; $report.txt, .json, and .dials for SOFTDC_CONFIG=@FILE"
  exit 0
fi
cat "$out/probes.log" >&2
die "there is no report: the probes did not end ($out/probes.log)"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: perftest.sh send_lat|write_bw [REPETITIONS]
#   send_lat   ib_send_lat -c DC, 64 bytes, between runs of the raw cache-line round trip of echo_vs_raw
#   write_bw   ib_write_bw, 1 MiB, memory moved and not moved, between runs of shm_copy_rates
# Prints each repetition (default 5), and the median of its ratios. Client and server are pinned to CPUS (default 0,1).
# BIN: where softdc_run and the benchmarks are built (default bazel-bin). Not under a real-time priority: the spinning
# programs would keep their own firmware threads off the CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

way=${1:-}
repetitions=${2:-5}
bin=${BIN:-bazel-bin}
cpus=${CPUS:-0,1}
client_cpu=${cpus%,*} server_cpu=${cpus#*,}
[[ $way == send_lat || $way == write_bw ]] || die "usage: perftest.sh send_lat|write_bw [REPETITIONS]"
for program in tools/softdc_run benchmarks/echo_vs_raw benchmarks/shm_copy_rates; do
  [[ -x $bin/$program ]] ||
    die "build it first: bazel build //tools:softdc_run //benchmarks:echo_vs_raw //benchmarks:shm_copy_rates"
done
for program in ib_send_lat ib_write_bw; do
  command -v "$program" >/dev/null || die "$program is not there: ./dev install perftest"
done

work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
port=$((10000 + $$ % 20000))

on_cpu() { taskset -c "$1" "${@:2}"; }
under_softdc() { on_cpu "$1" "$bin/tools/softdc_run" --domain "perftest$$" -- "${@:2}"; }
end_server() {
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
}

# perftest COMMAND…: the line of figures that its client prints.
perftest() {
  ((++port))
  local port_hex tries
  printf -v port_hex '%04X' "$port"
  under_softdc "$server_cpu" "$@" -p "$port" >"$work/server" 2>&1 &
  server=$!
  for ((tries = 0; tries < 600; ++tries)); do
    ! grep -qE "^ *[0-9]+: [0-9A-F]+:$port_hex [0-9A-F]+:0000 0A" /proc/net/tcp /proc/net/tcp6 || break
    sleep 0.1
  done
  under_softdc "$client_cpu" "$@" -p "$port" localhost >"$work/client" 2>&1 ||
    die "$* failed: $(tail -n 5 "$work/client")"
  wait "$server" || die "the server of $* failed: $(tail -n 5 "$work/server")"
  server=
  grep -E '^ *[0-9]+ +[0-9]+ +[0-9.]+ ' "$work/client" | tail -n 1
}

raw_ns() {
  rm -f "$work/raw"
  on_cpu "$server_cpu" "$bin/benchmarks/echo_vs_raw" serve raw "--cpus=$cpus" >"$work/raw" 2>&1 &
  server=$!
  until grep -qs 'listening on' "$work/raw"; do sleep 0.05; done
  local address
  address=$(sed -n 's/^listening on //p' "$work/raw")
  on_cpu "$client_cpu" "$bin/benchmarks/echo_vs_raw" measure raw "$address" "--cpus=$cpus" |
    awk '{ print $1 / 1000 }'
  end_server
}

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

send_lat() {
  local raw typical average
  printf '%12s %12s %12s %8s\n' 'raw, ns' 'typical, ns' 'average, ns' 'x raw'
  for ((i = 0; i < repetitions; ++i)); do
    raw=$(raw_ns)
    # It prints half round trips in microseconds: min, max, typical, average.
    read -r typical average < <(perftest ib_send_lat -F -c DC -s 64 -n 100000 | awk '{ print $5, $6 }')
    awk -v raw="$raw" -v typical="$typical" -v average="$average" 'BEGIN {
      printf "%12.1f %12.0f %12.0f %8.2f\n", raw, 2000 * typical, 2000 * average, 2000 * typical / raw }' |
      tee -a "$work/all"
  done
  printf 'whole round trips; median of the ratios: %s\n' "$(awk '{ print $4 }' "$work/all" | median)"
}

write_bw() {
  local moved unmoved memcpy_rate writev_rate
  printf '%10s %10s %8s %18s %10s %8s\n' memcpy moved ratio process_vm_writev unmoved ratio
  for ((i = 0; i < repetitions; ++i)); do
    on_cpu "$client_cpu" "$bin/benchmarks/shm_copy_rates" >"$work/rates"
    memcpy_rate=$(awk '/^memcpy into/ { print $(NF - 1) }' "$work/rates")
    writev_rate=$(awk '/^process_vm_writev/ { print $(NF - 1) }' "$work/rates")
    moved=$(perftest ib_write_bw -F -s 1048576 -n 5000 | awk '{ print $4 }')
    unmoved=$(SOFTDC_CONFIG='memory { move_private: false }' \
      perftest ib_write_bw -F -s 1048576 -n 5000 | awk '{ print $4 }')
    awk -v a="$memcpy_rate" -v b="$moved" -v c="$writev_rate" -v d="$unmoved" 'BEGIN {
      printf "%10.0f %10.0f %8.2f %18.0f %10.0f %8.2f\n", a, b, b / a, c, d, d / c }' | tee -a "$work/all"
  done
  printf 'MiB/s; medians of the ratios: %s and %s\n' "$(awk '{ print $3 }' "$work/all" | median)" \
    "$(awk '{ print $6 }' "$work/all" | median)"
}

"$way"

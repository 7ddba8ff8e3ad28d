#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh [SVG]
# The time of one request with a reply of the same size, one at a time, between two processes of this host, with Sluice on softdc,
# with UCX over shared memory and with gRPC over a Unix socket, in one run. Prints a row for each size: medians over the repetitions
# in µs, and the lowest and highest repetition. Writes a plot to SVG.
#   Sluice   sluice_perf rpc: a protobuf call; client and server pinned to CPUS (default 0,1)
#   UCX      ucx_perftest tag_lat, UCX_TLS=shm: tagged messages without calls; pinned in the same way. It prints the time of one way;
#            twice that is shown
#   gRPC     grpc_connect latency: unary calls of the generic API, without protobuf. Not pinned, since its threads share the CPUs
# REPETITIONS (default 5) alternate between the three. SECONDS_EACH (default 1) is the time of each, UCX excepted: a fixed number of
# messages. SIZES: bytes, default 64 1024 16384 262144. BIN: where sluice_perf is built (default bazel-bin). Needs ucx-utils and
# libgrpc++-dev (apt-get install). The machine should have nothing else to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

svg=${1:-}
bin=${BIN:-bazel-bin}
cpus=${CPUS:-0,1}
repetitions=${REPETITIONS:-5}
seconds=${SECONDS_EACH:-1}
read -ra sizes <<<"${SIZES:-64 1024 16384 262144}"
client_cpu=${cpus%,*} server_cpu=${cpus#*,}
[[ -x $bin/tools/sluice_perf ]] || die "build it first: bazel build //tools:sluice_perf"
command -v ucx_perftest >/dev/null || die "ucx_perftest is not there: apt-get install ucx-utils"

work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
# shellcheck disable=SC2046  # the flags of pkg-config are words.
g++ -std=c++17 -O2 benchmarks/peers/grpc_connect.cc -o "$work/grpc_connect" $(pkg-config --cflags --libs grpc++) ||
  die "grpc_connect does not build: apt-get install libgrpc++-dev pkg-config"
port=$((10000 + $$ % 20000))

# Each prints the median of one round trip in ns.
sluice_ns() {
  "$bin/tools/sluice_perf" rpc --window=1 --size="$1" --duration="${seconds}s" --cpus="$cpus" --json=- >"$work/sluice"
  sed -nE 's/.*"p50(_ns|Ns)": *"?([0-9]+).*/\2/p' "$work/sluice"
}
ucx_ns() {
  local messages=50000 tries
  [[ $1 -le 16384 ]] || messages=5000
  ((++port))
  UCX_TLS=shm taskset -c "$server_cpu" ucx_perftest -p "$port" >"$work/server" 2>&1 &
  server=$!
  for ((tries = 0; tries < 100; ++tries)); do
    sleep 0.1
    UCX_TLS=shm taskset -c "$client_cpu" ucx_perftest localhost -p "$port" -t tag_lat -s "$1" -n "$messages" -w 1000 -f -v \
      >"$work/ucx" 2>"$work/ucx_errors" && break
  done
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
  # CSV: iterations, then the median, the average and the overall average, in µs.
  awk -F, '/^[0-9]+,/ { value = $2 } END { if (value == "") exit 1; printf "%.0f\n", value * 2000 }' "$work/ucx"
}
grpc_ns() { "$work/grpc_connect" latency "$1" "$seconds"; }

# middle FILE: median, lowest and highest line, in µs.
middle() { sort -n "$1" | awk '{ v[NR] = $1 / 1000 } END { printf "%.2f (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }

printf '| bytes each way | Sluice, call, µs | UCX, messages, µs | gRPC, call, µs |\n|---|---|---|---|\n'
for size in "${sizes[@]}"; do
  for ((i = 0; i < repetitions; ++i)); do
    for peer in sluice ucx grpc; do
      value=$("${peer}_ns" "$size")
      [[ $value =~ ^[0-9]+$ ]] || die "$peer gave no figure for $size bytes: $(tail -n 3 "$work/$peer" 2>/dev/null)"
      echo "$value" >>"$work/$peer.$size"
    done
  done
  printf '| %s | %s | %s | %s |\n' "$size" "$(middle "$work/sluice.$size")" "$(middle "$work/ucx.$size")" "$(middle "$work/grpc.$size")"
  for peer in sluice ucx grpc; do
    sort -n "$work/$peer.$size" | awk -v peer="$peer" -v size="$size" \
      '{ v[NR] = $1 } END { print peer, size, v[int((NR + 1) / 2)] / 1000 }' >>"$work/points"
  done
done

[[ -z $svg ]] || awk '
  function log10(x) { return log(x) / log(10) }
  function x_of(size) { return 60 + 420 * (log10(size) - log10(min_x)) / (log10(max_x) - log10(min_x)) }
  function y_of(us) { return 40 + 240 * (top - log10(us)) / (top - bottom) }
  { if (!($1 in seen)) { seen[$1] = 1; name[++names] = $1 }
    points[$1] = points[$1] " " $2 ":" $3
    if (min_x == "" || $2 < min_x) min_x = $2
    if ($2 > max_x) max_x = $2
    if (min_y == "" || $3 < min_y) min_y = $3
    if ($3 > max_y) max_y = $3
    if (!($2 in ticks)) ticks[$2] = 1 }
  function floor(v) { return v == int(v) ? v : (v < 0 ? int(v) - 1 : int(v)) }
  END {
    if (max_x == min_x) max_x = min_x * 2
    bottom = floor(log10(min_y)); top = floor(log10(max_y)) + 1
    title["sluice"] = "Sluice: protobuf call, softdc"; title["ucx"] = "UCX: messages, shared memory"; title["grpc"] = "gRPC: call, Unix socket"
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 340\" width=\"760\" height=\"340\" role=\"img\">"
    print "<title>Time of a request and its reply over their size, for Sluice, UCX and gRPC</title>\n<style>"
    print ".page { fill: #ffffff }\n.rule { stroke: #d5dbe1; stroke-width: 1 }\n.line { fill: none; stroke-width: 2 }"
    print "text { font-family: system-ui, \"Segoe UI\", Helvetica, Arial, sans-serif; font-size: 12px; fill: #1c2530 }"
    print ".sluice { stroke: #1b6ca8 }\n.ucx { stroke: #2e8b57 }\n.grpc { stroke: #c9562c }"
    print "@media (prefers-color-scheme: dark) {\n.page { fill: #0d1117 }\n.rule { stroke: #30363d }\ntext { fill: #e4eaf0 }"
    print ".sluice { stroke: #6cb6f0 }\n.ucx { stroke: #6fcf97 }\n.grpc { stroke: #f08a5d }\n}\n</style>"
    print "<rect class=\"page\" width=\"760\" height=\"340\"/>\n<text x=\"60\" y=\"22\">µs for a request and its reply (median)</text>"
    for (p = bottom; p <= top; ++p) {
      y = y_of(10 ^ p)
      printf "<line class=\"rule\" x1=\"60\" y1=\"%.1f\" x2=\"480\" y2=\"%.1f\"/><text x=\"52\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", y, y, y + 4, 10 ^ p
    }
    for (size in ticks) printf "<text x=\"%.1f\" y=\"300\" text-anchor=\"middle\">%s</text>\n", x_of(size), (size + 0 >= 1024 ? size / 1024 " KiB" : size " B")
    print "<text x=\"270\" y=\"326\" text-anchor=\"middle\">bytes each way</text>"
    for (i = 1; i <= names; ++i) {
      n = split(points[name[i]], point, " ")
      line = ""
      for (j = 1; j <= n; ++j) { split(point[j], xy, ":"); line = line sprintf("%.1f,%.1f ", x_of(xy[1]), y_of(xy[2])) }
      printf "<polyline class=\"line %s\" points=\"%s\"/>\n", name[i], line
      printf "<line class=\"line %s\" x1=\"492\" y1=\"%d\" x2=\"512\" y2=\"%d\"/><text x=\"518\" y=\"%d\">%s</text>\n", name[i], 50 + 20 * i, 50 + 20 * i, 54 + 20 * i, title[name[i]]
    }
    print "</svg>"
  }' "$work/points" >"$svg"

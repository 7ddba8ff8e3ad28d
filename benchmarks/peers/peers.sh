#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh [SVG] [--html FILE]
# One request with a reply of the same size between two processes of this host: Sluice on softdc beside other libraries, in one run.
# Prints a Markdown table with a row for each library: the median round trip in µs for each of SIZES, one request at a time, and the
# replies of a second with 32 requests of the first size outstanding. Each figure is the median over the repetitions; the row below the
# table has the lowest and highest repetition of the first size. Writes a plot of the round trips to SVG, and to FILE a page with
# the table, the plot and the rates.
#   raw          sluice_perf --raw: a cache line there and back, the limit of the machine for one request
#   call         sluice_perf rpc: a protobuf call
#   message      sluice_perf flow: messages in a flow, returned by the receiver
#   ucx          ucx_echo: active messages, UCX_TLS=posix,self
#   libfabric    fi_pingpong of Debian's libfabric-bin, provider shm: the mean, since it prints nothing else; it has no rate
#   grpc         grpc_echo: unary calls of the generic API (without protobuf), Unix socket
#   capnp        capnp_echo: calls of Cap'n Proto, Unix socket
#   zeromq, nng  zeromq_echo, nng_echo: messages of a pair of sockets, Unix socket
# raw, call, message, ucx and libfabric poll: client and server are pinned to CPUS (default 0,1). The others sleep and have threads of
# their own, so they are not pinned.
# REPETITIONS (default 5): each goes through all libraries and sizes. SECONDS_EACH (default 1): time of one measurement, libfabric
# excepted (a fixed number of messages). SIZES: bytes, default 64 1024 16384 262144. BIN: where sluice_perf is built (default
# bazel-bin). Installs missing Debian packages. The machine should have nothing else to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

svg='' html=''
while [[ $# -gt 0 ]]; do
  case $1 in
  --html) html=${2:?--html needs a file} && shift 2 ;;
  --html=*) html=${1#*=} && shift ;;
  -*) die "unknown option $1: peers.sh [SVG] [--html FILE]" ;;
  *) svg=$1 && shift ;;
  esac
done
bin=${BIN:-bazel-bin}
cpus=${CPUS:-0,1}
repetitions=${REPETITIONS:-5}
seconds=${SECONDS_EACH:-1}
read -ra sizes <<<"${SIZES:-64 1024 16384 262144}"
client_cpu=${cpus%,*} server_cpu=${cpus#*,}
libraries=(raw call message ucx libfabric grpc capnp zeromq nng)
# By library; for the plot and the page.
declare -A titles=([raw]="a cache line there and back" [call]="Sluice: protobuf call" [message]="Sluice: message" [ucx]="UCX: message"
  [libfabric]="libfabric: message, mean" [grpc]="gRPC: call" [capnp]="Cap'n Proto: call" [zeromq]="ZeroMQ: message" [nng]="nng: message")
for file in "$svg" "$html"; do
  [[ -z $file || (-d $(dirname "$file") && -w $(dirname "$file")) ]] || die "can't write $file: its folder does not exist or is not writable"
done
[[ -z $html || -x $bin/tools/peers_page_main ]] || die "build it first: bazel build //tools:peers_page_main"
[[ -x $bin/tools/sluice_perf ]] || die "build it first: bazel build //tools:sluice_perf"
tools/dev/install.sh libucx-dev libfabric-bin libgrpc++-dev libcapnp-dev capnproto libzmq3-dev libnng-dev pkg-config >&2

work=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
sources=$PWD/benchmarks/peers
compile() { # NAME [FLAGS, sources and libraries]...
  local name=$1
  shift
  g++ -std=c++17 -O2 -I"$sources" -I"$work" "$sources/${name}_echo.cc" "$@" -o "$work/${name}_echo" || die "${name}_echo does not build"
}
step "compiling the programs of the other libraries" >&2
capnp compile -oc++:"$work" --src-prefix="$sources" "$sources/echo.capnp" || die "echo.capnp does not compile"
# shellcheck disable=SC2046  # the flags of pkg-config are words.
{
  compile ucx -lucp -lucs
  compile grpc $(pkg-config --cflags --libs grpc++)
  compile capnp "$work/echo.capnp.c++" $(pkg-config --cflags --libs capnp-rpc)
  compile zeromq -lzmq
  compile nng -lnng
}
port=$((10000 + $$ % 20000))

# field NAME FILE: a number of sluice_perf's JSON. Its names are those of bench_result.proto or their camel case.
field() {
  local camel
  camel=$(sed -E 's/_(.)/\U\1/g' <<<"$1")
  sed -nE "s/.*\"($1|$camel)\": *\"?([0-9.e+]+).*/\2/p" "$2" | awk 'NR == 1'
}
perf() { "$bin/tools/sluice_perf" "$1" --window="$2" --size="$3" --duration="${seconds}s" --cpus="$cpus" --json=- "${@:4}" >"$work/out"; }
echo_of() { # LIBRARY MODE SIZE
  local pinned=-
  [[ $1 != ucx ]] || pinned=$cpus
  UCX_TLS=posix,self "$work/$1_echo" "$2" "$3" "$seconds" "$pinned" 2>"$work/out"
}
libfabric_ns() {
  local messages=20000 tries
  [[ $1 -le 16384 ]] || messages=2000
  ((++port))
  taskset -c "$server_cpu" fi_pingpong -p shm -e rdm -S "$1" -I "$messages" -B "$port" >"$work/server" 2>&1 &
  server=$!
  for ((tries = 0; tries < 100; ++tries)); do
    sleep 0.1
    taskset -c "$client_cpu" fi_pingpong -p shm -e rdm -S "$1" -I "$messages" -P "$port" 127.0.0.1 >"$work/out" 2>&1 && break
  done
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  server=
  # Its last line has the time of one way in µs before the last column.
  awk 'NF >= 7 && $1 ~ /^[0-9]/ { value = $(NF - 1) } END { if (value == "") exit 1; printf "%.0f\n", value * 2000 }' "$work/out"
}

latency_ns() { # LIBRARY SIZE
  case $1 in
  raw) perf rpc 1 64 --raw && field raw_round_trip_ns "$work/out" ;;
  call) perf rpc 1 "$2" && field p50_ns "$work/out" ;;
  message) perf flow 1 "$2" --replies=1 && field p50_ns "$work/out" ;;
  libfabric) libfabric_ns "$2" ;;
  *) echo_of "$1" latency "$2" ;;
  esac
}
rate_per_s() { # LIBRARY
  case $1 in
  call) perf rpc 32 "${sizes[0]}" && field calls_per_second "$work/out" ;;
  message) perf flow 32 "${sizes[0]}" --replies=1 && field calls_per_second "$work/out" ;;
  *) echo_of "$1" rate "${sizes[0]}" ;;
  esac
}
keep() { # FILE VALUE WHAT
  [[ $2 =~ ^[0-9]+([.][0-9]*)?(e[+][0-9]+)?$ ]] || die "$3 gave no figure: $(tail -n 3 "$work/out" 2>/dev/null)"
  printf '%.1f\n' "$2" >>"$work/$1"
}

for ((i = 1; i <= repetitions; ++i)); do
  step "repetition $i of $repetitions" >&2
  for library in "${libraries[@]}"; do
    for size in "${sizes[@]}"; do
      [[ $library != raw || $size == "${sizes[0]}" ]] || continue
      keep "$library.$size" "$(latency_ns "$library" "$size")" "$library, $size bytes,"
    done
    [[ $library == raw || $library == libfabric ]] || keep "$library.rate" "$(rate_per_s "$library")" "$library, rate,"
  done
done

# figure FILE DIVISOR FORMAT: the median; nothing without measurements.
figure() { [[ ! -f $work/$1 ]] || sort -g "$work/$1" | awk -v by="$2" -v as="$3" '{ v[NR] = $1 / by } END { printf as, v[int((NR + 1) / 2)] }'; }
range() { sort -g "$work/$1" | awk '{ v[NR] = $1 / 1000 } END { printf "%.2f to %.2f", v[1], v[NR] }'; }
printf '| library |'
for size in "${sizes[@]}"; do printf ' %s B, µs |' "$size"; done
printf ' × raw | 32 outstanding, 1,000/s |\n|---|'
for size in "${sizes[@]}" x y; do printf -- '---|'; done
printf '\n'
raw_ns=$(figure "raw.${sizes[0]}" 1 '%.0f')
for library in "${libraries[@]}"; do
  printf '| %s |' "$library"
  for size in "${sizes[@]}"; do
    printf ' %s |' "$(figure "$library.$size" 1000 '%.2f')"
    [[ $library == raw || ! -f $work/$library.$size ]] || echo "$library $size $(figure "$library.$size" 1000 '%.4f')" >>"$work/points"
  done
  printf ' %s | %s |\n' "$(figure "$library.${sizes[0]}" "$raw_ns" '%.1f')" "$(figure "$library.rate" 1000 '%.0f')"
done
printf '\nLowest and highest repetition with %s bytes, µs:' "${sizes[0]}"
for library in "${libraries[@]}"; do printf ' %s %s;' "$library" "$(range "$library.${sizes[0]}")"; done
printf '\n'

if [[ -n $html ]]; then
  {
    printf 'note\t%s, %s CPUs, clients and servers that poll on CPUs %s; %s; %s repetitions of %s s\n' \
      "$(awk -F': ' '/^model name/ && !seen++ { print $2 }' /proc/cpuinfo)" "$(nproc)" "$cpus" "$(date -u +%Y-%m-%d)" "$repetitions" "$seconds"
    for library in "${libraries[@]}"; do
      for what in "${sizes[@]}" rate; do
        [[ ! -f $work/$library.$what ]] || sort -g "$work/$library.$what" | awk -v library="$library" -v title="${titles[$library]}" -v what="$what" '
          { v[NR] = $1 }
          END { printf "figure\t%s\t%s\t%s\t%s\t%s\t%s\n", library, title, what, v[int((NR + 1) / 2)], v[1], v[NR] }'
      done
    done
  } >"$work/figures"
  "$bin/tools/peers_page_main" "$work/figures" "$html"
fi

[[ -z $svg ]] || for library in "${libraries[@]}"; do printf '%s\t%s\n' "$library" "${titles[$library]}"; done >"$work/titles"
[[ -z $svg ]] || awk -v titles="$work/titles" '
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
    while ((getline line < titles) > 0) { split(line, pair, "\t"); title[pair[1]] = pair[2] }
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 340\" width=\"760\" height=\"340\" role=\"img\">"
    print "<title>Time of a request and its reply over their size, for Sluice and other libraries</title>\n<style>"
    print ".page { fill: #ffffff }\n.rule { stroke: #d5dbe1; stroke-width: 1 }\n.line { fill: none; stroke-width: 2 }"
    print "text { font-family: system-ui, \"Segoe UI\", Helvetica, Arial, sans-serif; font-size: 12px; fill: #1c2530 }"
    print ".call { stroke: #1b6ca8 }\n.message { stroke: #1b6ca8; stroke-dasharray: 6 3 }\n.ucx { stroke: #2e8b57 }\n.libfabric { stroke: #8a6d1d }"
    print ".grpc { stroke: #c9562c }\n.capnp { stroke: #8e44ad }\n.zeromq { stroke: #5f6b76 }\n.nng { stroke: #5f6b76; stroke-dasharray: 2 3 }"
    print "@media (prefers-color-scheme: dark) {\n.page { fill: #0d1117 }\n.rule { stroke: #30363d }\ntext { fill: #e4eaf0 }"
    print ".call, .message { stroke: #6cb6f0 }\n.ucx { stroke: #6fcf97 }\n.libfabric { stroke: #d9b54a }"
    print ".grpc { stroke: #f08a5d }\n.capnp { stroke: #c59be0 }\n.zeromq, .nng { stroke: #a9b4be }\n}\n</style>"
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

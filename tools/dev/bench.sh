#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: bench.sh [--short] [pattern]
#        bench.sh --peers [SVG] [--html FILE]
#        bench.sh --html FILE                     --peers with a page
# Runs the Google Benchmark programs in //benchmarks whose label matches. --short only shows that each one runs. --peers measures
# Sluice beside other libraries in one run and prints a table (benchmarks/peers/peers.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

if [[ ${1:-} == --peers || ${1:-} == --html* ]]; then
  [[ $1 != --peers ]] || shift
  bazel build //tools:sluice_perf //tools:peers_page_main
  exec benchmarks/peers/peers.sh "$@"
fi
flags=()
if [[ ${1:-} == --short ]]; then
  flags=(--benchmark_min_time=0.01)
  shift
fi
bazel build //benchmarks/...
# Programs that are no Google Benchmark (two processes, long runs) have their own instructions in RESULTS.md.
all=()
lines_of all bazel query --noshow_progress \
  'kind(cc_binary, //benchmarks/...) intersect rdeps(//benchmarks/..., @com_github_google_benchmark//:benchmark)'
mapfile -t labels < <(printf '%s\n' "${all[@]}" | grep -E -- "${1:-.}" || true)
[[ ${#labels[@]} -gt 0 ]] || die "no benchmark matches '${1:-}'"
for label in "${labels[@]}"; do
  step "$label"
  program=${label#//}
  "bazel-bin/${program/://}" "${flags[@]}"
done

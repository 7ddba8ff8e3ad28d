#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: simulate.sh [--calls] [--asan] [--seed N] [--seeds K | --minutes M] ...
# Runs whole nodes on simulated hosts, seed after seed; docs/simulation.md tells of the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh
step "building the simulation"
target=tests/simulation/simulate
if [[ ${1:-} == --calls ]]; then
  target=tests/nodes/nodes_main
  shift
fi
config=()
if [[ ${1:-} == --asan ]]; then
  config=(--config=asan)
  shift
fi
bazel build "${config[@]}" "//${target%/*}:${target##*/}"
exec "bazel-bin/$target" "$@"

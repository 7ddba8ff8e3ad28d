#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: hostile.sh [--seed N] [--seeds K | --minutes M] ...
# Lets a hostile peer loose on a simulated server, seed after seed; docs/hostile.md lists the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh
step "building the hostile peer"
config=()
if [[ ${1:-} == --asan ]]; then
  config=(--config=asan)
  shift
fi
bazel build "${config[@]}" //tests/hostile:hostile_main
exec bazel-bin/tests/hostile/hostile_main "$@"

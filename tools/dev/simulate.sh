#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: simulate.sh [--seed N] [--seeds K | --minutes M] ...
# Runs whole nodes on simulated hosts, seed after seed; docs/simulation.md tells of the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh
step "building the simulation"
bazel build //tests/simulation:simulate
exec bazel-bin/tests/simulation/simulate "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: lab.sh [pattern]
# The connection manager against a real kernel: see README.md. With a pattern, only the scenarios that match it.
# Exit status: 0 when all passed, or when the lab cannot be set up here, which is said.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

cache=${XDG_CACHE_HOME:-$HOME/.cache}/sluice-lab
skip() {
  echo "lab: skipped: $*"
  exit 0
}
tools/dev/install.sh || exit 1
(tools/dev/install.sh qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 procps rdma-core ibverbs-providers) ||
  skip "QEMU, or what goes with it, cannot be installed here"
tests/lab/vm/prepare.sh "$cache" || skip "Debian's kernel cannot be had here"
step "building the lab's programs"
suite=//tests/transport/softdc/conformance:conformance_test probe=//tools/hardware:hardware_probe
bazel build //tests/lab:cm_lab //examples/echo:echo_server //examples/echo:echo_client "$suite" "$probe" || exit 1
in_bin() { tr : / <<<"bazel-bin/${1#//}"; }

script=$(mktemp)
trap 'rm -f "$script"' EXIT
{
  echo 'export SLUICE_CM_LAB=/tmp/cm_lab SLUICE_LAB_PROGRAMS=/tmp SLUICE_LAB_SUITE=/tmp/conformance_test'
  echo 'export SLUICE_LAB_PAGE=/tmp/two-hosts.md'
  printf 'export SLUICE_LAB_PROBE=/tmp/hardware_probe SLUICE_LAB_DIFFERS=/tmp/rxe_differs.txt SLUICE_LAB_ONLY=%q\n' "${1:-}"
  echo 'exec bash /tmp/scenarios.sh'
} >"$script"
step "running it on a kernel of its own"
tests/lab/vm/boot.sh "$cache" "${SLUICE_LAB_LIMIT_S:-900}" "$script" bazel-bin/tests/lab/cm_lab \
  bazel-bin/examples/echo/echo_server bazel-bin/examples/echo/echo_client "$(in_bin "$suite")" "$(in_bin "$probe")" \
  tests/lab/{scenarios,suite_scenarios}.sh tests/lab/rxe_differs.txt docs/two-hosts.md

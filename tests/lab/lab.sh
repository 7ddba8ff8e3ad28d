#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: lab.sh [--all] [pattern]
# The library against a real kernel: see README.md. With a pattern, only the scenarios that match it. --all: every case of the library's
# tests that the lab can run, each in a process of its own, instead of some, and ten times as many calls with packets lost.
# Exit status: 0 when all passed, or when the lab cannot be set up here, which is said.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

all=
if [[ ${1:-} == --all ]]; then
  all=1
  shift
fi
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
programs=(//tests/lab:cm_lab //tests/lab:call_lab //tests/lab:address_shim.so //examples/echo:echo_{server,client} //examples/flow:{publisher,subscriber}
  //examples/log_tail:log_{server,append,tail} //examples/fan_out:{shard_server,search_server,search} //examples/own_loop:relay
  //examples/kv_store:kv{,_server} //examples/blockstore:blockstore_{server,client} //examples/tutorial:tutorial //tools:sluice_info //tests/middleware/api:api_tests //tests/transport/endpoint:endpoint_tests)
[[ -z $all ]] || programs+=(//tests/middleware/api:{runtime,channel_engine,coroutine_handover,lease_batch,lease_cancel,lease_handover,raw_message}_test)
bazel build "${programs[@]}" "$suite" "$probe" || exit 1
in_bin() { tr : / <<<"bazel-bin/${1#//}"; }
files=()
for program in "${programs[@]}" "$suite" "$probe"; do files+=("$(in_bin "$program")"); done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
script=$scratch/script
{
  echo 'export SLUICE_CM_LAB=/tmp/cm_lab SLUICE_LAB_PROGRAMS=/tmp SLUICE_LAB_SUITE=/tmp/conformance_test'
  printf 'export SLUICE_LAB_ALL=%q\n' "$all"
  printf 'export SLUICE_LAB_PROBE=/tmp/hardware_probe SLUICE_LAB_DIFFERS=/tmp/rxe_differs.txt SLUICE_LAB_ONLY=%q\n' "${1:-}"
  echo 'exec bash /tmp/scenarios.sh'
} >"$script"
limit_s=900
[[ -z $all ]] || limit_s=7200
status=0
step "running it on a kernel of its own"
tests/lab/vm/boot.sh "$cache" "${SLUICE_LAB_LIMIT_S:-$limit_s}" "$script" "${files[@]}" \
  tests/lab/{judge,scenarios,suite_scenarios,example_scenarios,load_scenarios,library_scenarios}.sh tests/lab/{rxe_differs,library_differs}.txt ||
  status=$?
[[ $status -eq 0 || ($status -eq 3 && -n ${1:-}) ]] || exit $status

# The two machines are alike, but for their end of the wire.
mkdir "$scratch/wire"
many=10000
[[ -z $all ]] || many=100000
port=$((20000 + RANDOM))
for end in server client; do
  {
    printf 'export SLUICE_LAB_END=%q SLUICE_LAB_PROGRAMS=/tmp SLUICE_LAB_CALLS=%q SLUICE_LAB_ONLY=%q\n' "$end" "$many" "${1:-}"
    printf 'export SLUICE_LAB_PAGE=/tmp/two-hosts.md SLUICE_LAB_MODULES=%q\n' "$cache/kernel/lib/modules"
    echo 'exec bash /tmp/two_machines.sh'
  } >"$scratch/$end"
done
step "running it on two kernels"
boot_end() {
  tests/lab/vm/boot.sh -w "$scratch/wire:$port:$1" "$cache" "${SLUICE_LAB_LIMIT_S:-$limit_s}" "$scratch/$2" \
    bazel-bin/{tests/lab/call_lab,tools/sluice_info,examples/{echo/echo_{server,client},flow/{publisher,subscriber},log_tail/log_{server,append,tail}}} \
    bazel-bin/examples/{fan_out/{shard_server,search_server,search},own_loop/relay,kv_store/kv{,_server},blockstore/blockstore_{server,client}} \
    tests/lab/{judge,two_machines}.sh docs/two-hosts.md
}
boot_end 1 server >"$scratch/server.out" &
two=0
boot_end 2 client || two=$?
wait $! || { [[ $two -ne 0 ]] || two=1; }
[[ $two -ne 3 ]] || { [[ $status -eq 0 ]] || die "no scenario matches ${1:-}"; exit 0; }
[[ $two -eq 0 ]] || cat "$scratch/server.out"
exit $two

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

# compile PACKAGE CODE: makes an object at the path that Bazel would give it, and prints the path.
compile() {
  local object=$TEST_TMPDIR/bin/$1/_objs/lib/code.pic.o
  mkdir -p "$(dirname "$object")"
  gcc -O1 -x c -c -o "$object" - <<<"$2"
  printf '%s\n' "$object"
}
check() { tools/dev/check_symbols tools/dev/symbols_allowed.txt "$@"; }

header='#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
'
verbs_call=$header'int f(struct ibv_pd* pd) { return ibv_dealloc_pd(pd); }'
dv_call=$header'int f(struct ibv_qp* qp) { return mlx5dv_dci_stream_id_reset(qp, 1); }'
cm_call=$header'int f(struct rdma_cm_id* id) { return rdma_disconnect(id); }'
macro_call=$header'void* f(struct ibv_pd* pd, char* p, int access) { return ibv_reg_mr(pd, p, 64, access); }'
address=$header'void* p = ibv_open_device;'
pure_helper=$header'const char* f(void) { return ibv_wc_status_str(IBV_WC_SUCCESS); }'
inline_dispatch=$header'int f(struct ibv_cq* cq, struct ibv_wc* wc, struct ibv_qp_ex* qp) {
  ibv_wr_start(qp); ibv_wr_send(qp); return ibv_wr_complete(qp) + ibv_poll_cq(cq, 1, wc); }'

expect 1 'transport/queue/.* calls ibv_dealloc_pd:' check "$(compile transport/queue "$verbs_call")"
expect 1 'middleware/api/.* calls mlx5dv_dci_stream_id_reset:' check "$(compile middleware/api "$dv_call")"
expect 1 'examples/echo/.* calls rdma_disconnect:' check "$(compile examples/echo "$cm_call")"
expect 1 'calls ibv_reg_mr' check "$(compile tests/transport/queue "$macro_call")"
expect 1 'calls ibv_open_device:' check "$(compile tools "$address")"
expect 1 'calls ibv_dealloc_pd:' check "$(compile transport/verbs_like "$verbs_call")"

good=$(compile transport/path "$pure_helper")
expect 0 '' check "$good"
expect 0 '' check "$good" "$(compile transport/queue "$inline_dispatch")"
expect 0 '' check "$good" "$(compile transport/verbs "$verbs_call")"
expect 0 '' check "$good" "$(compile transport/softdc/shm "$dv_call")"

# One offender among good ones is found, and a check of nothing is not a pass.
expect 1 'transport/cm/' check "$good" "$(compile transport/cm "$cm_call")" "$good"
expect 2 'nothing would be proved' check
expect 2 'nothing would be proved' check "$(compile transport/verbs "$verbs_call")" "$(compile external/abc "$verbs_call")"
expect 2 'no undefined symbol' check "$(compile transport/poller 'int f(void) { return 1; }')"
expect 2 'cannot read absent.txt' tools/dev/check_symbols absent.txt "$good"
expect 2 'cannot read' check "$TEST_TMPDIR/bin/absent/_objs/lib/code.o"

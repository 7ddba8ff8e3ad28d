# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The programs of ./dev conformance, what each must print, and why a row ends as it does where that is not success.
# Sourced by conformance.sh, which explains `one` and `two`, sets `table` and reads `settings`.
# shellcheck disable=SC2034,SC2154

section() {
  printf '\n## %s\n\n| program | arguments | result | note |\n|---|---|---|---|\n' "$1" >>"$table"
}

section "Devices and attributes"
one ibv_devices "" '^ *softdc0[[:space:]]+[0-9a-f]{16}$'
one ibv_devinfo "-v" '^	*GID\[ *0\]:	*::ffff:127\.0\.0\.1, RoCE v2$' "port active, identity, limits, GIDs with their type"

section "Ping-pong of libibverbs"
pingpong() {
  local program=$1 options=$2 note=${3:-}
  local command="$program -g 0 -p %P $options"
  two "$command" "$command 127.0.0.1" '^[0-9]+ iters in ' '^[0-9]+ iters in ' "$note"
}
for options in "" "-e"; do
  pingpong ibv_rc_pingpong "-c $options" "data verified by the program"
  pingpong ibv_rc_pingpong "-c -N $options" "data verified by the program; posts with ibv_wr_*"
  pingpong ibv_srq_pingpong "-c $options" "data verified by the program; 16 queue pairs on one SRQ"
  pingpong ibv_ud_pingpong "-c $options" "data verified by the program"
  pingpong ibv_uc_pingpong "-c $options" "data verified by the program"
done
pingpong ibv_rc_pingpong "-c -s 1048576 -n 100" "data verified by the program; a megabyte"
pingpong ibv_rc_pingpong "-c -o" "data verified by the program; memory paged on demand"
pingpong ibv_rc_pingpong "-c -o -P" "data verified by the program; memory paged on demand, prefetched"

# perftest: the table's last line has a size, a count and numbers that are not zero.
readonly bandwidth='^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]*[1-9][0-9.]*'
readonly latency='^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]*[1-9][0-9.]*'
perftest() {
  local program=$1 options=$2 note=${3:-} codes=${4:-0 0}
  local line=$bandwidth both=$bandwidth
  [[ $program == *_lat ]] && line=$latency both=$latency
  # The target of reads and atomics measures nothing, and that of one-sided bandwidth prints what the client tells it.
  [[ $program == ib_read_lat || $program == ib_atomic_lat ]] && both='^ remote address: '
  # shellcheck disable=SC2086
  two "$program -p %P $options" "$program 127.0.0.1 -p %P $options" "$both" "$line" "$note" $codes
}
readonly leak="the measurement passes; perftest never destroys the receive CQ it makes for DC, so its \
ibv_destroy_comp_channel is EBUSY, as libibverbs says for a channel with a CQ, and it exits with 1"

section "perftest, RC"
for verb in send write read atomic; do
  for kind in bw lat; do
    perftest "ib_${verb}_$kind" "-n 1000"
  done
done
for program in ib_send_bw ib_send_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat; do
  perftest "$program" "-n 1000 -e" "sleeps on a completion channel"
done
perftest ib_send_bw "-n 200 -a" "2 B to 8 MiB"
perftest ib_write_bw "-n 200 -a" "2 B to 8 MiB"
perftest ib_read_bw "-n 200 -a" "2 B to 8 MiB"
perftest ib_write_bw "-n 1000 -q 4" "four queue pairs"
perftest ib_send_bw "-n 1000 -b" "both directions"
perftest ib_send_lat "-n 1000 -I 64 -s 64" "inline data"
perftest ib_write_bw "-D 2" "by time"
perftest ib_send_bw "-n 1000 -r 64 --use-srq" "shared receive queue"

section "perftest, DC"
for verb in send write read atomic; do
  for kind in bw lat; do
    perftest "ib_${verb}_$kind" "-c DC -n 1000"
  done
done
perftest ib_send_bw "-c DC -n 1000 -e" "sleeps on a completion channel; $leak" "1 0"
perftest ib_send_lat "-c DC -n 1000 -e" "sleeps on a completion channel; $leak" "1 0"
perftest ib_read_bw "-c DC -n 1000 -e" "sleeps on a completion channel; $leak" "0 1"
perftest ib_send_bw "-c DC -n 200 -a" "2 B to 8 MiB"
perftest ib_write_bw "-c DC -n 200 -a" "2 B to 8 MiB"
perftest ib_read_bw "-c DC -n 200 -a" "2 B to 8 MiB"
perftest ib_write_bw "-c DC -n 1000 -q 4" "four DCIs"
perftest ib_send_bw "-c DC -n 1000 --log_dci_streams=2 --log_active_dci_streams=2" "four streams"
perftest ib_write_lat "-c DC -n 1000 -I 64 -s 64" "inline data"
perftest ib_send_bw "-c DC -D 2" "by time"

section "perftest, UC and UD"
for kind in bw lat; do
  perftest "ib_send_$kind" "-c UD -n 1000"
  perftest "ib_send_$kind" "-c UC -n 1000"
  perftest "ib_write_$kind" "-c UC -n 1000"
done

section "RDMA_CM, on the distribution's librdmacm"
rping() {
  local options=$1 note=$2
  two "rping -s -a 127.0.0.1 -p %P $options" "rping -c -a 127.0.0.1 -p %P $options" '' '^ping data: ' "$note"
}
rping "-C 100 -v -V" "data verified by the program"
rping "-C 100 -S 4000 -v -V" "data verified by the program"
rping "-C 100 -v -V -q" "data verified by the program; queue pairs of its own, moved with rdma_init_qp_attr"
cp tools/dev/conformance_rping.sh "$scratch/rping_many"
environment=(PATH="$scratch:$PATH" DONE="$scratch/rping_done")
two "rping_many serve %P" "rping_many clients %P 100" \
  '^alive after its clients$' '^100 of 100 clients$' "one server that stays, 100 clients; data verified by the program"
environment=()
for options in "" "-c 4 -C 50" "-c 100 -C 10" "-m"; do
  two "ucmatose -p %P $options" "ucmatose -p %P $options -s 127.0.0.1" 'return status 0' 'return status 0' \
    "$([[ $options == -m ]] && echo "ids migrate to other event channels")"
done
two "rdma_server -p %P" "rdma_client -p %P -s 127.0.0.1" 'rdma_server: end 0' 'rdma_client: end 0'
two "rdma_xserver -p %P -c r" "rdma_xclient -p %P -c r -s 127.0.0.1" 'rdma_xserver: end 0' 'rdma_xclient: end 0' \
  "RC; sends inline without having asked for room"
# Its -p is a port space; the port is always this one.
fixed_port=7174 two "udaddy" "udaddy -s 127.0.0.1" 'return status 0' 'return status 0' "UD, addresses by SIDR"
two "rstream -p %P -T v -S 65536 -C 100 -I 1" "rstream -p %P -T v -S 65536 -C 100 -I 1 -s 127.0.0.1" \
  '^custom +64k' '^custom +64k' "rsockets; data verified by the program"
two "rstream -p %P -T n -S 1024 -C 100" "rstream -p %P -T n -S 1024 -C 100 -s 127.0.0.1" \
  '^custom +1k' '^custom +1k' "rsockets, non-blocking"
two "riostream -p %P -T v -S 65536 -C 100" "riostream -p %P -T v -S 65536 -C 100 -s 127.0.0.1" \
  '^custom +64k' '^custom +64k' "rsockets' own direct writes; data verified by the program"
perftest ib_send_bw "-R -n 1000" "connected by RDMA_CM"
perftest ib_write_lat "-R -n 1000" "connected by RDMA_CM"
perftest ib_send_lat "-R -c UD -n 1000" "connected by RDMA_CM"
one ib_send_bw "-R -c DC" 'DC does not support RDMA_CM' "perftest itself refuses RDMA_CM for DC, on any device" 1

section "UCX, on queue pairs of verbs"
# Payloads are large enough that nothing else which goes through the device could make up for them.
ucx() {
  local transport=$1 test=$2 size=$3 count=$4
  environment=(UCX_TLS="$transport,self" UCX_NET_DEVICES=softdc0:1)
  least_bytes=$((size * count))
  two "ucx_perftest -p %P" "ucx_perftest 127.0.0.1 -p %P -t $test -s $size -n $count -w 10" \
    '^\| Message size: ' '^Final: +[0-9]+ .*[1-9]' "UCX_TLS=$transport,self"
  environment=() least_bytes=
}
for transport in rc_v ud_v; do
  ucx $transport ucp_am_lat 1024 1000
  ucx $transport ucp_am_bw 65536 200
  ucx $transport tag_lat 1024 1000
  ucx $transport ucp_put_bw 8192 1000
  ucx $transport stream_bw 4096 1000
done
ucx rc_v ucp_get 8192 1000
ucx rc_v tag_bw 1048576 50
one ucx_info "-d" '^#      Transport: rc_verbs$' "lists softdc0 with rc_verbs and ud_verbs"

section "libfabric"
fabric() {
  local provider=$1 kind=$2
  local command="fi_pingpong -p $provider -e $kind -c -S 4096 -I 1000"
  least_bytes=$((2 * 4096 * 1000))
  two "$command -B %P" "$command -P %P 127.0.0.1" '^4k +1k +=1k ' '^4k +1k +=1k ' "data verified by the program"
  least_bytes=
}
fabric verbs msg
fabric "verbs;ofi_rxm" rdm
# A program of our own (tools/dev/conformance_fabric.c), which waits by polling and checks larger blocks.
gcc -O1 -o "$scratch/fabric_check" tools/dev/conformance_fabric.c -lfabric
environment=(PATH="$scratch:$PATH")
least_bytes=$((2 * 65536 * 200))
for kind in "verbs msg" "verbs;ofi_rxm rdm"; do
  two "fabric_check $kind %P" "fabric_check $kind %P 127.0.0.1" '^200 rounds, 0 blocks wrong$' \
    '^200 rounds, 0 blocks wrong$' "data verified by the program"
done
environment=() least_bytes=

section "Open MPI, over UCX"
# A program of our own (tools/dev/conformance_mpi.c): MPI has none that checks what it moves.
mpi() {
  local transport=$1
  environment=(UCX_TLS="$transport,self" UCX_NET_DEVICES=softdc0:1 OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH="$scratch:$PATH")
  # Sent, exchanged, put, got and summed up, by each of two.
  least_bytes=$((2 * 5 * 65536 * 200))
  one mpirun "--oversubscribe -np 2 --mca pml ucx --mca osc ucx --mca btl ^openib,vader,tcp mpi_check" '^in all 0 wrong$' \
    "UCX_TLS=$transport,self; data verified by the program"
  environment=() least_bytes=
}
mpicc -O1 -o "$scratch/mpi_check" tools/dev/conformance_mpi.c
mpi rc_v
mpi ud_v

section "On InfiniBand: addresses are LIDs"
settings='port { link_layer: INFINIBAND }'
for program in ibv_rc_pingpong ibv_ud_pingpong ibv_srq_pingpong; do
  two "$program -p %P -c" "$program -p %P -c 127.0.0.1" '^[0-9]+ iters in ' '^[0-9]+ iters in ' \
    "data verified by the program"
done
perftest ib_send_bw "-c DC -n 1000"
perftest ib_write_lat "-n 1000"
rping "-C 100 -v -V" "data verified by the program"
settings=

# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scenarios of the lab in which the example programs run over RC queue pairs, unchanged. Sourced by scenarios.sh, whose wire and words they
# use. examples/echo is in scenarios.sh.

# started NAME PROGRAM ARGUMENT...: a program that listens. Its output is /tmp/NAME.out; it ends with stop_started NAME....
started_pids=
started() {
  local name=$1 pid
  shift
  timeout --preserve-status 120 "$programs/$1" "${@:2}" >"/tmp/$name.out" 2>&1 &
  pid=$!
  started_pids+=" $pid"
  until grep -qs listening "/tmp/$name.out"; do
    kill -0 $pid 2>/dev/null || { missing+=" a $name that listens"; return 1; }
    sleep 0.05
  done
}
stop_started() {
  local pid name
  for pid in $started_pids; do kill -TERM "$pid" 2>/dev/null; done
  for pid in $started_pids; do wait "$pid" 2>/dev/null || missing+=" status 0 of a server, not $?"; done
  started_pids=
  # What scenario() prints if something is missing.
  for name in "$@"; do cat "/tmp/$name.out"; done >/tmp/server
}
# prints TEXT COMMAND...: the last lines of the output are TEXT.
prints() {
  local text=$1
  shift
  "$programs/$1" "${@:2}" >/tmp/client 2>&1
  [[ $(</tmp/client) == "$text" ]] || missing+=" what $1 should print: $text"
}

flow_over_rc() {
  local ticks=5000 one two
  started publisher publisher --listen=10.0.0.1:7480 --device=rxe0 --ticks=$ticks --subscribers=2
  "$programs/subscriber" --publisher=10.0.0.1:7480 --device=rxe1 --timeout=100s >/tmp/one 2>&1 &
  one=$!
  "$programs/subscriber" --publisher=10.0.0.1:7480 --device=rxe1 --timeout=100s >/tmp/two 2>&1 &
  two=$!
  wait $one || missing+=" a subscriber that ends well"
  wait $two || missing+=" a second subscriber that ends well"
  cat /tmp/one /tmp/two >/tmp/client
  [[ $(grep -c "^$ticks ticks, all in order" /tmp/client) == 2 ]] || missing+=" $ticks ticks for each"
  stop_started publisher
  said="two subscribers had $ticks ticks each, in order"
}

log_tail_over_rc() {
  started log_server log_server --listen=10.0.0.1:7473 --device=rxe0
  prints "300 lines" log_append --server=10.0.0.1:7473 --device=rxe1 < <(seq 1 300)
  prints "$(seq 251 300)" log_tail --server=10.0.0.1:7473 --device=rxe1 --last=50 --lines=50
  stop_started log_server
  said="streams of 300 lines up and 50 down"
}

# The front end is a client of the shards across the wire, and a server of a client across the wire.
fan_out_over_rc() {
  started shard_one shard_server --listen=10.0.0.1:7481 --device=rxe0 --words=apple,pear
  started shard_two shard_server --listen=10.0.0.1:7482 --device=rxe0 --words=apricot,plum
  started front search_server --listen=10.0.0.2:7483 --device=rxe1 --shards=10.0.0.1:7481,10.0.0.1:7482 --patience=20s
  prints $'apple\napricot' search --server=10.0.0.2:7483 --device=rxe0 --prefix=ap --timeout=60s
  stop_started shard_one shard_two front
  said="a front end asked two shards through one runtime"
}

own_loop_over_rc() {
  started echo echo_server --listen=10.0.0.1:7471 --device=rxe0
  started relay relay --listen=10.0.0.2:7490 --device=rxe1 --upstream=10.0.0.1:7471
  prints "through a relay" echo_client --server=10.0.0.2:7490 --device=rxe0 --timeout=30s --text="through a relay"
  stop_started echo relay
  said="a relay with a loop of its own passed a call on"
}

# Bulk ports: reads of the server's memory, one-sided.
kv_store_over_rc() {
  started kv_server kv_server --listen=10.0.0.1:7474 --device=rxe0
  "$programs/kv" --server=10.0.0.1:7474 --device=rxe1 put colour green >/tmp/client 2>&1 || missing+=" a put that ends well"
  prints green kv --server=10.0.0.1:7474 --device=rxe1 get colour
  stop_started kv_server
  said="a value was put by a call, and read one-sided"
}

# Bulk ports: blocks with signatures, which the CPU checks on both sides.
blockstore_over_rc() {
  started blockstore_server blockstore_server --listen=10.0.0.1:7472 --device=rxe0
  "$programs/blockstore_client" --server=10.0.0.1:7472 --device=rxe1 --corrupt >/tmp/client 2>&1 || missing+=" a client that ends well"
  grep -q '^read 16 blocks, all as they were written' /tmp/client || missing+=" blocks as they were written"
  [[ $(grep -c 'DATA_LOSS' /tmp/client) == 2 ]] || missing+=" two damaged blocks that are found"
  grep -q '^and the next write and read are good' /tmp/client || missing+=" a good end"
  stop_started blockstore_server
  # shellcheck disable=SC2034 # scenarios.sh prints it
  said="blocks went to a store and back, and each damaged block was found"
}

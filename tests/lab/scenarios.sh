#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside of the lab's virtual machine: connections with external QP numbers, and whole programs over RC queue pairs,
# between two soft-RoCE devices, rxe0 (10.0.0.1, the servers') and rxe1 (10.0.0.2, the clients'), which are the two ends of
# one wire.
# Prints a line per scenario, and last how many passed; a non-zero status when one failed: 3 if there was none.
set -uo pipefail
lab=${SLUICE_CM_LAB:?the program to run}
programs=${SLUICE_LAB_PROGRAMS:?folder of the example programs}
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/lab/judge.sh
source "$here/judge.sh"

# ---- The wire.

wire() {
  local end
  ip link add east type veth peer name west
  ip addr add 10.0.0.1/24 dev east
  ip addr add 10.0.0.2/24 dev west
  for end in east west; do
    ip link set "$end" up
    # Both addresses are ours; the kernel is to believe that each is behind the other's end of the wire.
    echo 1 >"/proc/sys/net/ipv4/conf/$end/accept_local"
    echo 0 >"/proc/sys/net/ipv4/conf/$end/rp_filter"
  done
  echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
  ip neigh replace 10.0.0.2 lladdr "$(</sys/class/net/west/address)" dev east nud permanent
  ip neigh replace 10.0.0.1 lladdr "$(</sys/class/net/east/address)" dev west nud permanent
  ip route add 10.0.0.2 dev east src 10.0.0.1 table 201
  ip route add 10.0.0.1 dev west src 10.0.0.2 table 202
  # The local table takes what arrives; what is sent from one of them to the other takes the wire.
  ip rule add pref 50 lookup local
  ip rule del pref 0
  ip rule add pref 21 from 10.0.0.1 to 10.0.0.2 iif lo lookup 201
  ip rule add pref 22 from 10.0.0.2 to 10.0.0.1 iif lo lookup 202
  ip rule add pref 23 to 10.0.0.2 iif east lookup 201
  ip rule add pref 24 to 10.0.0.1 iif west lookup 202
  rdma link add rxe0 type rxe netdev east
  rdma link add rxe1 type rxe netdev west
  local device tries
  for device in rxe0 rxe1; do
    for ((tries = 0; tries < 200; ++tries)); do
      grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" && break
      sleep 0.05
    done
  done
}

# loss PERCENT: of what either end sends. 0: none any more; it is missing if none was lost until then.
loss() {
  local end lost
  if [[ $1 == 0 ]]; then
    lost=$(tc -s qdisc show | grep -A 1 netem | grep -oE 'dropped [0-9]+' | cut -d' ' -f2 | paste -sd+)
    [[ $((${lost:-0})) -gt 0 ]] || missing+=" lost packets;"
  fi
  for end in east west; do
    tc qdisc del dev "$end" root 2>/dev/null
    [[ $1 == 0 ]] || tc qdisc add dev "$end" root netem loss "$1%" || missing+=" netem;"
  done
}

# ---- Programs.

# Ends when its input does: the coprocess keeps that open for us.
start_server() {
  : >/tmp/server
  "$lab" serve --device rxe0 --address 10.0.0.1 --port 7000 "$@" < <(exec sleep infinity) >/tmp/server 2>&1 &
  server=$!
  until grep -qs listening /tmp/server; do
    kill -0 $server 2>/dev/null || { cat /tmp/server; return 1; }
    sleep 0.05
  done
}
stop_server() {
  kill -TERM "$server" && wait "$server" || missing+=" status 0 of the server;"
}
client() {
  "$lab" connect --device rxe1 --source 10.0.0.2 --address 10.0.0.1 --port 7000 "$@" < <(exec sleep infinity) >/tmp/client 2>&1
}

start_echo() {
  : >/tmp/client
  "$programs/echo_server" --listen=10.0.0.1:7471 --device=rxe0 >/tmp/server 2>&1 &
  server=$!
  until grep -qs listening /tmp/server; do
    kill -0 $server 2>/dev/null || return 1
    sleep 0.05
  done
}
# echo_call TEXT...: each is said by a process of its own. How many were answered is in $answered.
answered=0
echo_call() {
  local text
  for text in "$@"; do
    "$programs/echo_client" --server=10.0.0.1:7471 --device=rxe1 --timeout=30s --text="$text" >/tmp/answer 2>&1
    cat /tmp/answer >>/tmp/client
    [[ $(</tmp/answer) == "$text" ]] && ((++answered))
  done
}
# Packets that a device has sent.
sent_by() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }

# start_clients N: they are up, and stay so.
start_clients() {
  : >/tmp/client
  { client --count "$1" --keep; } 2>/dev/null &
  clients=$!
  until grep -qs "all up" /tmp/client || ! kill -0 $clients 2>/dev/null; do sleep 0.05; done
}

scenario() {
  selected "$1" || return 0
  "$1"
  judge "$1" /tmp/server /tmp/client
}

# ---- What is to be shown.

a_thousand_connections() {
  start_server
  client --count 1000 --at_once 20
  stop_server
  has /tmp/client up=1000 stale=0 exhausted=0 live=0 reserved=0 late=0
  # A client that closes at once may be gone before its third message is seen, so not all are "up" here; all end.
  has /tmp/server stale=0 exhausted=0 live=0 reserved=0 down="$(value /tmp/server requests)"
  said="1000 made and taken down, none stale, $(value /tmp/client retries) tries made again; the numbers are those of stand-in QPs"
}

# What is proved in 56 bytes of a request and 72 of a response, and what a refusal carries, on their way through a kernel.
handshake_without_dc() {
  start_server --secret "a secret of this lab"
  client --secret "a secret of this lab" --count 20
  has /tmp/client up=20 proven=20 refused=0 late=0
  client --secret "some other secret, as long" --count 3
  stop_server
  has /tmp/client up=0 down_UNAUTHENTICATED=3 proven=0 late=0
  has /tmp/server proven=20 refused=3
  said="20 proved to both ends, 3 with another secret refused by name"
}

ece_both_ways() {
  start_server --ece 2147483649
  client --ece 4294967295
  stop_server
  has /tmp/client up=1 ece=0x15b3:0x80000001
  has /tmp/server ece=0x15b3:0xffffffff
  said="all 32 bits of options arrive at both ends"
}

ece_of_the_client_alone() {
  start_server
  client --ece 1
  stop_server
  has /tmp/client up=1 ece=0x15b3:0x0
  has /tmp/server ece=0x15b3:0x1
  said="the client reads its own vendor, and no options"
}

ece_of_the_server_alone() {
  start_server --ece 2
  client
  stop_server
  has /tmp/client up=1 ece=0x0:0x2
  has /tmp/server ece=0x0:0x0
  said="its options arrive, under the vendor of a client that named none"
}

server_killed_and_restarted() {
  start_server
  start_clients 50
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  wait "$clients"
  has /tmp/client up=50 down_UNAVAILABLE=50 late=0
  start_server
  client --count 50
  stop_server
  has /tmp/client up=50 stale=0
  has /tmp/server stale=0 down="$(value /tmp/server requests)"
  said="50 connections told of its death, 50 new ones to its successor, none stale"
}

client_killed() {
  start_server
  start_clients 20
  pkill -KILL -x cm_lab -P "$clients" || kill -KILL "$clients"
  wait "$clients" 2>/dev/null
  client --count 20
  stop_server
  has /tmp/client up=20 stale=0
  has /tmp/server stale=0 down="$(value /tmp/server requests)"
  said="the server hears of each death, and its successor connects"
}

packets_lost() {
  start_server
  loss 20
  client --count 40 --at_once 40 --deadline 90s
  loss 0
  stop_server
  has /tmp/client stale=0 late=0 live=0
  local up failed_calls
  up=$(value /tmp/client up)
  failed_calls=$(grep -oE '\bdown_[A-Z_]+=[0-9]+' /tmp/client | cut -d= -f2 | paste -sd+)
  want "$((up + ${failed_calls:-0} == 40 ? 1 : 0))" "every attempt ends"
  [[ $up -ge 36 ]] || missing+=" up=$up of 40"
  said="one packet in five lost: $up of 40 connected, $(value /tmp/client retries) tries repeated, the others ended in time"
}

server_that_never_answers() {
  start_server --silent
  client --count 3 --deadline 8s
  stop_server
  has /tmp/client up=0 late=0 down_DEADLINE_EXCEEDED=3 live=0
  said="the client's own deadline ends the wait, of which the kernel would say nothing for minutes"
}

client_that_never_establishes() {
  start_server
  client --count 2 --never_establish --deadline 12s
  stop_server
  has /tmp/server up=0 reaped=2 live=0
  said="the server reaps what is half open"
}

peer_that_never_answers_goodbye() {
  start_server
  start_clients 5
  local stopped
  stopped=$(pgrep -x cm_lab | awk -v server="$server" '$1 != server && !seen++')
  kill -STOP "$stopped"
  stop_server
  kill -CONT "$stopped"
  wait "$clients"
  has /tmp/client up=5 down_UNAVAILABLE=5
  start_server
  client --count 5
  stop_server
  has /tmp/client up=5
  said="five connections closed towards a process that stands still, and five new ones"
}

# The library as a whole: RDMA_CM, hello and welcome, then an RC queue pair with an SRQ in the kernel.
echo_over_rc() {
  local before
  before=$(sent_by rxe1)
  start_echo
  answered=0
  echo_call one two three four five
  stop_server
  [[ $answered == 5 ]] || missing+=" answered=$answered of 5"
  grep -q 'RC queue pairs instead of DC' /tmp/server || missing+=" a server that says it uses RC"
  [[ $(sent_by rxe1) -gt $before ]] || missing+=" packets by rxe1"
  said="five clients had their answers over RC, $(($(sent_by rxe1) - before)) packets"
}

echo_over_rc_with_packets_lost() {
  start_echo
  loss 5
  answered=0
  echo_call {1..10}
  loss 0
  stop_server
  [[ $answered == 10 ]] || missing+=" answered=$answered of 10"
  said="one packet in twenty lost: ten clients had their answers"
}

echo_server_killed_and_restarted() {
  start_echo
  answered=0
  echo_call before
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  echo_call nobody
  [[ $answered == 1 ]] || missing+=" answered=$answered of 1"
  start_echo
  answered=0
  echo_call after again
  stop_server
  [[ $answered == 2 ]] || missing+=" answered=$answered of 2"
  said="a call to the dead server fails, and its successor answers"
}

# shellcheck source=tests/lab/suite_scenarios.sh
source "$here/suite_scenarios.sh"
# shellcheck source=tests/lab/example_scenarios.sh
source "$here/example_scenarios.sh"
# shellcheck source=tests/lab/load_scenarios.sh
source "$here/load_scenarios.sh"
# shellcheck source=tests/lab/library_scenarios.sh
source "$here/library_scenarios.sh"

wire
for name in a_thousand_connections handshake_without_dc ece_both_ways ece_of_the_client_alone ece_of_the_server_alone \
  server_killed_and_restarted client_killed packets_lost server_that_never_answers client_that_never_establishes \
  peer_that_never_answers_goodbye echo_over_rc echo_over_rc_with_packets_lost echo_server_killed_and_restarted flow_over_rc \
  log_tail_over_rc fan_out_over_rc own_loop_over_rc kv_store_over_rc blockstore_over_rc connections_made_and_torn_down server_killed_under_load device_pulled_under_load soak conformance_suite ${SLUICE_LAB_ALL:+conformance_cases} hardware_probes tutorial_over_rc library_tests library_endpoint_tests; do
  scenario "$name"
done
conclude kernel

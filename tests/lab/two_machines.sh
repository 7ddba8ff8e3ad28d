#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs inside of each of the lab's two virtual machines, whose eth0 are the two ends of one wire: docs/two-hosts.md, step by step, and calls
# between two kernels with soft RoCE. SLUICE_LAB_END says which machine this is: server (10.9.0.1) or client (10.9.0.2). They wait for each
# other by files in /wire, a folder of both. The client's machine judges: it prints a line per scenario, and last how many passed. Its exit
# status is 1 if a scenario failed, and 3 if there was none.
set -uo pipefail
end=${SLUICE_LAB_END:?server or client}
programs=${SLUICE_LAB_PROGRAMS:?folder of call_lab}
many=${SLUICE_LAB_CALLS:?number of calls with packets lost}
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/lab/judge.sh
source "$here/judge.sh"

# ---- The wire.

declare -A host=([server]=1 [client]=2)
link_is_up() {
  local tries
  for ((tries = 0; tries < 200; ++tries)); do
    grep -qs ACTIVE /sys/class/infiniband/rxe0/ports/1/state && return
    sleep 0.05
  done
  return 1
}
# The device and the address of the scenarios with calls. The page has left others.
attached=
attach() {
  [[ -z $attached ]] || return 0
  attached=1
  rdma link delete rxe0 2>/dev/null
  ip addr flush dev eth0
  ip addr add "10.9.0.${host[$end]}/24" dev eth0
  ip link set eth0 mtu 4200 up
  rdma link add rxe0 type rxe netdev eth0
  link_is_up || { echo "no soft RoCE on eth0"; exit 1; }
}
# shape NETEM...: what happens to packets that this end sends. Nothing: none is touched.
shape() {
  tc qdisc del dev eth0 root 2>/dev/null
  [[ $# -eq 0 ]] || tc qdisc add dev eth0 root netem "$@" || missing+=" netem $*;"
}
# The number of packets that netem has dropped.
dropped() { tc -s qdisc show dev eth0 root | grep -oE 'dropped [0-9]+' | cut -d' ' -f2; }
# The packets' loss is part of a scenario: it fails if nothing was lost.
loses() { [[ $* != *loss* || $(dropped) -gt 0 ]] || missing+=" packets dropped by the $end's machine;"; }

# ---- Both ends.

# No call may hang. The calls with packets lost take longest.
call_limit_s=$((120 + many / 20))
# say WORD and await END.WORD: await gives up when every call must have ended, or when the script of the other machine has ended.
say() { : >"/wire/$end.$1"; }
await() {
  local tries gone=
  for ((tries = 0; tries < 10 * (call_limit_s + 60); ++tries)); do
    [[ ! -e /wire/$1 ]] || return 0
    [[ -z $gone ]] || break
    [[ ! -e /wire/${1%%.*}.ended ]] || gone=1  # perhaps it said the word just before
    sleep 0.1
  done
  missing+=" $1;"
  return 1
}
trap 'say ended' EXIT

# listens PID FILE: waits until the program says so there, or has ended.
listens() {
  until grep -qs listening "$2"; do
    kill -0 "$1" 2>/dev/null || { missing+=" a server that listens;"; return 1; }
    sleep 0.1
  done
}
# The server's machine has no say in the end: it hands on what is missing there. all_of_it: the client's machine takes that over.
hand_on() {
  echo "$missing" >"/wire/$1.missing"
  missing=
  say "$1.over"
}
all_of_it() {
  await "server.$1.over" || return 0
  local there
  there=$(<"/wire/$1.missing")
  [[ -z $there ]] || missing+=" on the server's machine:$there"
}

# What each scenario does to the packets of both ends, and its number of calls.
declare -A packets=(
  [calls_between_two_kernels]=''
  [calls_with_packets_lost]='loss 1%'
  [calls_with_packets_delayed_and_reordered]='delay 2ms 1ms reorder 25%'
  [wire_cut_for_five_seconds]=''
  [server_powered_off]=''
)
declare -A calls=(
  [calls_between_two_kernels]=2000
  [calls_with_packets_lost]=$many
  [calls_with_packets_delayed_and_reordered]=1000
  [wire_cut_for_five_seconds]=1000000
  [server_powered_off]=1000000
)
# The page comes first, because its step 2 begins without a device.
scenarios=(two_hosts_page calls_between_two_kernels calls_with_packets_lost calls_with_packets_delayed_and_reordered examples_between_two_kernels wire_cut_for_five_seconds server_powered_off)

# ---- The page, in the machines of hosts A (server) and B (client).

page=${SLUICE_LAB_PAGE:?docs/two-hosts.md}
clone=/tmp/clone  # where the reader is

# block STEP LANGUAGE N: the N-th fenced block in this language below the heading of the step.
block() {
  awk -v heading="## $1. " -v fence="\`\`\`$2" -v wanted="$3" '
    /^## / { within = index($0, heading) == 1 }
    $0 == "```" { inside = 0 }
    inside && count == wanted
    within && $0 == fence { inside = 1; ++count }
  ' "$page"
}
# in_clone COMMANDS: as the reader's shell runs them.
in_clone() { (cd $clone && exec timeout --preserve-status 120 bash -euc "$1"); }
# row TEXT FILE: the first column of the page's last table has the text, and the file too.
row() {
  grep -qF "| \`$1\`" "$page" || missing+=" a row '$1' in the page;"
  grep -qF "$1" "$2" || missing+=" '$1' in ${2##*/};"
}
# examined BEFORE STATUS TEXT...: after the commands BEFORE, `sluice_info --check` of step 2 ends with STATUS, and each text is in its findings.
examined() {
  local status=0 text
  in_clone "$1
    $(block 2 sh 2)" >/tmp/check 2>&1 || status=$?
  { echo "--- sluice_info --check: status $status"; cat /tmp/check; } >>"/wire/page.$end"
  [[ $status == "$2" ]] || missing+=" status $2 of sluice_info --check, not $status;"
  for text in "${@:3}"; do grep -qF -- "$text" /tmp/check || missing+=" '$text' from sluice_info --check;"; done
}

# A plain host: an address, no RDMA module beyond the kernel's own, and no device.
plain_host() {
  local program
  mkdir -p $clone/bazel-bin/{examples/echo,tools} /lib/modules
  for program in examples/echo/echo_{server,client} tools/sluice_info; do ln -s "$programs/${program##*/}" "$clone/bazel-bin/$program"; done
  ln -s "${SLUICE_LAB_MODULES:?the modules of the kernel}/$(uname -r)" "/lib/modules/$(uname -r)"
  rmmod rdma_ucm rdma_rxe || missing+=" a kernel without rdma_ucm and rdma_rxe;"
  ip addr add "10.0.0.${host[$end]}/24" dev eth0
  ip link set eth0 up
}

step_two() {
  local nothing="Nothing keeps Sluice from working here."
  plain_host
  examined "" 0 "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NAME" "$nothing"
  # What the page's reader sees without this step.
  in_clone "$(block 4 sh 1)" >/tmp/no_device 2>&1 && missing+=" no answer without a device;"
  row "no device named rxe0" /tmp/no_device
  in_clone "$(block 2 sh 1)" >>"/wire/page.$end" 2>&1 || missing+=" status 0 of the commands of step 2;"
  link_is_up || missing+=" an active port;"
  examined "" 0 "rxe0 port 1      ACTIVE" "$nothing"
  grep -q BLOCKING /tmp/check && missing+=" no BLOCKING line;"
  # The limit does not hold for root. The second shell runs the same commands as another user.
  examined "ulimit -l 8192" 0 "CAP_IPC_LOCK lets this process exceed" "$nothing"
  examined 'ulimit -l 8192
    [[ $(id -u) != 0 ]] || exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -euc "$BASH_EXECUTION_STRING"' 1 "BLOCKING  memlock" "  ulimit -l unlimited;"
  # One of the three commands was forgotten.
  rmmod rdma_ucm || missing+=" a kernel without rdma_ucm;"
  examined "" 1 "BLOCKING  RDMA_CM" "  modprobe rdma_ucm;" "see BLOCKING"
  in_clone "modprobe rdma_ucm" || missing+=" status 0 of modprobe rdma_ucm;"
  examined "" 0 "$nothing"
}

# start_page_server COMMANDS: its output is /wire/page.served, its process $page_server.
start_page_server() {
  (cd $clone && exec timeout --preserve-status 300 bash -euc "$1") >/wire/page.served 2>&1 &
  page_server=$!
  listens $page_server /wire/page.served
}
end_page_server() {
  kill -TERM $page_server
  wait $page_server || missing+=" status 0 of the server, not $?;"
  { echo "--- the server"; cat /wire/page.served; } >>/wire/page.server
}

host_a() {
  local command
  command=$(block 3 sh 1)
  step_two
  say page.ready
  await client.page.refused
  start_page_server "exec $command"
  block 3 text 1 >/tmp/expected
  [[ -s /tmp/expected ]] || missing+=" the server's output in the page;"
  diff /tmp/expected /wire/page.served >>/wire/page.server || missing+=" the server's output as in the page;"
  say page.listening
  await client.page.called
  end_page_server
  start_page_server "exec ${command/--device=rxe0/}"
  grep -q '^device softdc' /wire/page.served || missing+=" a server on softdc without --device;"
  say page.on_softdc
  await client.page.softdc_called
  end_page_server
  in_clone "ulimit -l 64; exec setpriv --reuid=65534 --regid=65534 --clear-groups $command" >/tmp/locked 2>&1 && missing+=" no server within 64 KiB;"
  { echo "--- the server within 64 KiB"; cat /tmp/locked; } >>/wire/page.server
  row "RLIMIT_MEMLOCK is" /tmp/locked
  start_page_server "ulimit -l 64; exec $command"  # root needs no limit
  end_page_server
  hand_on two_hosts_page
}

# call_fails TEXT [OPTION...]: the page's call ends with an error that has the text.
call_fails() {
  # The emulated machine is slow.
  in_clone "$(block 4 sh 1) --timeout=30s ${*:2}" >/tmp/failed 2>&1 && missing+=" no answer instead of '$1';"
  { echo "--- a call that fails"; cat /tmp/failed; } >>/wire/page.client
  row "$1" /tmp/failed
}
host_b() {
  step_two
  await server.page.ready
  call_fails "no process listens on that port"
  say page.refused
  await server.page.listening
  in_clone "$(block 4 sh 1) --timeout=30s" >/tmp/called 2>&1 || missing+=" status 0 of the client, not $?;"
  { echo "--- the call"; cat /tmp/called; } >>/wire/page.client
  block 4 text 1 >/tmp/expected
  [[ -s /tmp/expected ]] || missing+=" the client's output in the page;"
  diff /tmp/expected /tmp/called >>/wire/page.client || missing+=" the client's output as in the page;"
  # No packet of UDP arrives; the hosts know each other's link addresses.
  ip neigh replace 10.0.0.1 lladdr 52:54:00:00:00:01 dev eth0 nud permanent
  shape loss 100%
  call_fails "connect timed out" --timeout=5s
  shape
  # RoCE packets of 512 bytes.
  ip link set eth0 mtu 1000
  call_fails "this side's path MTU is"
  ip link set eth0 mtu 4200
  in_clone "$(block 4 sh 1) --timeout=30s" >/tmp/called 2>&1 || missing+=" an answer between Ethernet MTUs of 1500 and 4200;"
  ip link set eth0 mtu 1500
  say page.called
  await server.page.on_softdc
  call_fails "no process listens on that port"
  say page.softdc_called
  all_of_it two_hosts_page
  said="from two plain kernels to 'hello' with the commands of docs/two-hosts.md; the errors of 5 rows of its table are as it says"
  judge two_hosts_page /wire/page.server /wire/page.client
}

# ---- The server's machine.

# Serves until the client's machine is done. Its output is in /wire.
serve() {
  local name=$1 server
  attach
  # shellcheck disable=SC2086 # words
  shape ${packets[$name]}
  rm -f /tmp/book
  "$programs/call_lab" serve --listen=10.9.0.1:7490 --device=rxe0 --book=/tmp/book --calls="${calls[$name]}" >"/wire/$name.served" 2>&1 &
  server=$!
  listens $server "/wire/$name.served"
  say "$name.up"
  if [[ $name == server_powered_off ]]; then
    await "client.$name.under_way"
    echo 0 >/lab/status
    sync
    # At once, as if somebody had pulled the plug.
    echo o >/proc/sysrq-trigger
    sleep 60
    exit 1  # the power is still on
  fi
  await "client.$name.done"
  loses "${packets[$name]}"
  kill -TERM $server
  wait $server
  echo "status=$?" >>"/wire/$name.served"
  hand_on "$name"
}

# ---- The client's machine.

call() {
  local name=$1
  shift
  timeout $call_limit_s "$programs/call_lab" call --server=10.9.0.1:7490 --device=rxe0 --calls="${calls[$name]}" "$@" >/tmp/called 2>&1
}
# Waits until calls are being made: the device sends packets by the hundred.
sent() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
under_way() {
  local before tries
  before=$(sent)
  for ((tries = 0; tries < 600; ++tries)); do
    [[ $(($(sent) - before)) -lt 500 ]] || return 0
    sleep 0.1
  done
  missing+=" calls within a minute;"
}
# Each call has its right answer, and was run once.
each_once() {
  local name=$1 count=${calls[$1]}
  call "$name" --outstanding=16 || missing+=" status 0 of the client;"
  loses "${packets[$name]}"
  say "$name.done"
  all_of_it "$name"
  has /tmp/called ended="$count" right="$count" wrong=0 twice=0
  has "/wire/$name.served" executed="$count" repeated=0 status=0
  said="$count calls, each with its right answer, each run once"
}
calls_between_two_kernels() { each_once "$1"; }
calls_with_packets_lost() { each_once "$1"; }
calls_with_packets_delayed_and_reordered() { each_once "$1"; }

# Calls in flight when the peer is declared dead end with UNAVAILABLE. The others wait, and are answered. The interface stays up: after
# `ip link set eth0 down` the kernel's soft RoCE makes no connection any more (README.md).
wire_cut_for_five_seconds() {
  local name=$1 count client
  call "$name" --outstanding=16 --wait --timeout=40s --during=30s &
  client=$!
  under_way
  shape loss 100%
  sleep 5
  loses loss
  shape
  wait $client || missing+=" status 0 of the client;"
  say "$name.done"
  all_of_it "$name"
  count=$(value /tmp/called started)
  has /tmp/called ended="$count" wrong=0 failed=0 twice=0
  has "/wire/$name.served" repeated=0 status=0
  [[ $(value /tmp/called right) -ge $((count - 64)) ]] || missing+=" at least $((count - 64)) answers;"
  said="5 s without a wire: $(value /tmp/called right) of $count calls answered, $(value /tmp/called unavailable) ended with UNAVAILABLE, none ran twice"
}

# Nobody says goodbye: the calls end with UNAVAILABLE, and none hangs.
server_powered_off() {
  local name=$1 count client
  call "$name" --outstanding=16 --during=15s &
  client=$!
  under_way
  say "$name.under_way"
  wait $client || missing+=" status 0 of the client;"
  count=$(value /tmp/called started)
  has /tmp/called ended="$count" wrong=0 failed=0 twice=0
  [[ $(value /tmp/called unavailable) -gt 0 ]] || missing+=" calls that the power cut ended;"
  said="the server's machine was powered off: $(value /tmp/called right) calls answered, $(value /tmp/called unavailable) ended with UNAVAILABLE"
}

run_scenario() {
  local name=$1
  attach
  # shellcheck disable=SC2086 # words
  shape ${packets[$name]}
  : >/tmp/called
  await "server.$name.up" && "$name" "$name"
  judge "$name" "/wire/$name.served" /tmp/called
}

# ---- The example programs: one after the other, their servers on the server's machine.

examples=(flow log_tail fan_out own_loop kv_store blockstore)
declare -A example_server=(
  [flow]='publisher --listen=10.9.0.1:7480 --ticks=2000 --subscribers=1'
  [log_tail]='log_server --listen=10.9.0.1:7473'
  [fan_out]='shard_server --listen=10.9.0.1:7481 --words=apple,apricot,plum'
  [own_loop]='echo_server --listen=10.9.0.1:7471'
  [kv_store]='kv_server --listen=10.9.0.1:7474'
  [blockstore]='blockstore_server --listen=10.9.0.1:7472'
)
serve_examples() {
  local example server
  attach
  shape
  for example in "${examples[@]}"; do
    # shellcheck disable=SC2086 # words
    timeout --preserve-status 300 "$programs/"${example_server[$example]} --device=rxe0 >"/wire/$example.served" 2>&1 &
    server=$!
    listens $server "/wire/$example.served"
    say "$example.up"
    await "client.$example.done"
    kill -TERM $server 2>/dev/null
    wait $server || missing+=" status 0 of the server of $example;"
  done
  hand_on examples_between_two_kernels
}

# prints TEXT PROGRAM ARGUMENT...: the output is TEXT.
prints() {
  local text=$1 output
  shift
  output=$(timeout 120 "$programs/$1" "${@:2}" --device=rxe0 2>&1)
  printf '%s\n' "$output" >>/tmp/called
  [[ $output == "$text" ]] || missing+=" what $1 should print: $text;"
}
# start_between PROGRAM ARGUMENT...: starts it on this machine, as a server that is a client of the other machine. $between: its process.
between=
start_between() {
  timeout --preserve-status 200 "$programs/$1" "${@:2}" --device=rxe0 >"/tmp/$1.out" 2>&1 &
  between=$!
  listens $between "/tmp/$1.out"
}
stop_between() {
  kill -TERM $between
  wait $between || missing+=" status 0 of a program between;"
}
example_flow() {
  timeout 120 "$programs/subscriber" --publisher=10.9.0.1:7480 --device=rxe0 --timeout=100s >>/tmp/called 2>&1 || missing+=" a subscriber that ends well;"
  grep -q '^2000 ticks, all in order' /tmp/called || missing+=" 2000 ticks in order;"
}
example_log_tail() {
  prints "300 lines" log_append --server=10.9.0.1:7473 < <(seq 1 300)
  prints "$(seq 251 300)" log_tail --server=10.9.0.1:7473 --last=50 --lines=50
}
example_fan_out() {
  start_between search_server --listen=10.9.0.2:7483 --shards=10.9.0.1:7481 --patience=20s
  prints $'apple\napricot' search --server=10.9.0.2:7483 --prefix=ap --timeout=60s
  stop_between
}
example_own_loop() {
  start_between relay --listen=10.9.0.2:7490 --upstream=10.9.0.1:7471
  prints "through a relay" echo_client --server=10.9.0.2:7490 --timeout=30s --text="through a relay"
  stop_between
}
example_kv_store() {
  timeout 120 "$programs/kv" --server=10.9.0.1:7474 --device=rxe0 put colour green >>/tmp/called 2>&1 || missing+=" a put that ends well;"
  prints green kv --server=10.9.0.1:7474 get colour
}
example_blockstore() {
  timeout 120 "$programs/blockstore_client" --server=10.9.0.1:7472 --device=rxe0 --corrupt >/tmp/blocks 2>&1 || missing+=" a client of the blocks that ends well;"
  cat /tmp/blocks >>/tmp/called
  grep -q '^read 16 blocks, all as they were written' /tmp/blocks || missing+=" blocks as they were written;"
  [[ $(grep -c 'DATA_LOSS' /tmp/blocks) == 2 ]] || missing+=" two damaged blocks that are found;"
}
run_examples() {
  local example
  attach
  shape
  : >/tmp/called
  for example in "${examples[@]}"; do
    await "server.$example.up" && "example_$example"
    say "$example.done"
  done
  all_of_it examples_between_two_kernels
  (cd /wire && cat "${examples[@]/%/.served}") >/tmp/served 2>/dev/null
  said="the programs of ${examples[*]}: servers on one kernel, clients on the other"
  judge examples_between_two_kernels /tmp/served /tmp/called
}

for name in "${scenarios[@]}"; do
  selected "$name" || continue
  case $end.$name in
    server.two_hosts_page) host_a ;;
    client.two_hosts_page) host_b ;;
    server.examples_between_two_kernels) serve_examples ;;
    client.examples_between_two_kernels) run_examples ;;
    server.*) serve "$name" ;;
    *) run_scenario "$name" ;;
  esac
done
[[ $end == client ]] || exit 0
conclude "two kernels"

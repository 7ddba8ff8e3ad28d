# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Scenarios of the lab with calls in flight when something ends. call_lab counts each call at both ends. Sourced by scenarios.sh, whose wire and
# words they use.
book=/tmp/book

# serve_calls CALLS: a server that counts in the book, which a server that was killed may have left.
serve_calls() {
  : >/tmp/server
  "$programs/call_lab" serve --listen=10.0.0.1:7490 --device=rxe0 --book=$book --calls="$1" >/tmp/server 2>&1 &
  server=$!
  until grep -qs listening /tmp/server; do
    kill -0 $server 2>/dev/null || { missing+=" a server that listens;"; return 1; }
    sleep 0.05
  done
}
make_calls() { timeout "$1" "$programs/call_lab" call --server=10.0.0.1:7490 --device=rxe1 "${@:2}" >/tmp/client 2>&1; }
# Waits until the server has run some calls.
some_calls() {
  local tries
  for ((tries = 0; tries < 600; ++tries)); do
    [[ $(tr -d '\0' <$book | wc -c) -lt $1 ]] || return 0
    sleep 0.05
  done
  missing+=" $1 calls within 30 s;"
}

server_killed_under_load() {
  local count=3000 calling
  rm -f $book
  serve_calls $count
  make_calls 200 --calls=$count --outstanding=16 --wait --timeout=120s &
  calling=$!
  some_calls 500
  kill -KILL "$server"
  wait "$server" 2>/dev/null
  serve_calls $count
  wait $calling || missing+=" status 0 of the client;"
  kill -TERM "$server" && wait "$server" || missing+=" status 0 of the server;"
  has /tmp/client ended=$count wrong=0 failed=0 twice=0
  has /tmp/server repeated=0
  [[ $(value /tmp/client right) -ge $((count - 64)) ]] || missing+=" at least $((count - 64)) answers;"
  said="$(value /tmp/client right) of $count calls answered, $(value /tmp/client unavailable) ended with UNAVAILABLE, none ran twice"
}

# With --all a thousand connections, each with an RC queue pair at both ends and one call; 16 of them at a time.
connections_made_and_torn_down() {
  local count=50
  [[ -z ${SLUICE_LAB_ALL:-} ]] || count=1000
  rm -f $book
  serve_calls $count
  timeout 500 "$programs/call_lab" connect --server=10.0.0.1:7490 --device=rxe1 --calls=$count --outstanding=16 >/tmp/client 2>&1 || missing+=" status 0 of the client;"
  has /tmp/client connected=$count right=$count wrong=0
  rdma resource show qp link rxe1 >/tmp/queue_pairs 2>&1
  ! grep -q 'type RC' /tmp/queue_pairs || missing+=" no RC queue pair of the client left;"
  kill -TERM "$server" && wait "$server" || missing+=" status 0 of the server;"
  has /tmp/server executed=$count repeated=0
  said="$count connections made, used and torn down"
}

# The client's device goes: every call ends. The server goes on, and answers when the device is back.
device_pulled_under_load() {
  local count=20000 calling tries
  rm -f $book
  serve_calls $count
  make_calls 60 --calls=$count --outstanding=16 &
  calling=$!
  some_calls 500
  rdma link delete rxe1
  wait $calling || missing+=" status 0 of the client without a device;"
  has /tmp/client ended=$count wrong=0 twice=0
  [[ $(value /tmp/client right) -lt $count ]] || missing+=" calls that the pull ended;"
  said="$(value /tmp/client right) calls answered, $((count - $(value /tmp/client right))) ended with an error"
  cp /tmp/client /tmp/client_before
  rdma link add rxe1 type rxe netdev west
  for ((tries = 0; tries < 200; ++tries)); do
    grep -q ACTIVE /sys/class/infiniband/rxe1/ports/1/state && break
    sleep 0.05
  done
  make_calls 60 --calls=100
  has /tmp/client ended=100 right=100
  kill -TERM "$server" && wait "$server" || missing+=" status 0 of the server;"
  cat /tmp/client_before >>/tmp/client
  said+="; with a new device 100 of 100 answered"
}

# With --all for ten minutes, otherwise for ten seconds.
soak() {
  local during=10s count=1000000
  [[ -z ${SLUICE_LAB_ALL:-} ]] || during=600s
  rm -f $book
  serve_calls $count
  make_calls 700 --calls=$count --outstanding=16 --bytes=1000 --during=$during || missing+=" status 0 of the client;"
  kill -TERM "$server" && wait "$server" || missing+=" status 0 of the server;"
  count=$(value /tmp/client started)
  [[ ${count:-0} -gt 100 ]] || missing+=" more than 100 calls;"
  has /tmp/client ended="$count" right="$count" wrong=0 twice=0
  has /tmp/server executed="$count" repeated=0
  said="$count calls in $during, each with its right answer, each run once"
}

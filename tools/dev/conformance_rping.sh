#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: DONE=FILE conformance_rping.sh serve PORT | clients PORT COUNT
# For ./dev conformance: one rping server that stays (-P) and COUNT clients, one after the other (of two requests at once
# rping takes one for both), each with ten pings whose data is verified. A server that stays never ends by itself: it is
# ended when the file DONE is there, and has to be alive then.
set -uo pipefail

serve() {
  local port=$1 server status=0
  rping -s -P -a 127.0.0.1 -p "$port" -V &
  server=$!
  until [[ -e $DONE ]]; do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.05
  done
  kill -0 "$server" 2>/dev/null || status=1
  kill -9 "$server" 2>/dev/null
  wait "$server" 2>/dev/null
  [[ $status == 0 ]] && echo "alive after its clients"
  return "$status"
}

clients() {
  local port=$1 count=$2 passed=0 i
  for ((i = 0; i < count; ++i)); do
    timeout 60 rping -c -a 127.0.0.1 -p "$port" -C 10 -V >/dev/null && ((++passed))
  done
  touch "$DONE"
  echo "$passed of $count clients"
  [[ $passed == "$count" ]]
}

what=$1
shift
"$what" "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: gateway_python_test.sh
# Debian's gRPC for Python against sluice_gateway and a Sluice server (route_client.py).
set -euo pipefail

fail() {
  echo "gateway_python_test: $*" >&2
  exit 1
}

export SOFTDC_DOMAIN=gateway-python-$$
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT

# Starts a program in the background, and waits until it says where it listens: sets `address`.
start() {
  local said=$TEST_TMPDIR/$1.said
  "${@:2}" >"$said" &
  local pid=$!
  pids+=("$pid")
  until address=$(sed -n 's/^listening on //p' "$said") && [[ -n $address ]]; do
    kill -0 "$pid" 2>/dev/null || fail "$1 ended before it listened"
  done
}

start server tests/tools/gateway/route_server --listen=127.0.0.1:0
start gateway tools/gateway/sluice_gateway --listen=127.0.0.1:0 --device=softdc0 "--server=$address"

modules=$TEST_TMPDIR/modules
mkdir "$modules"
protoc --proto_path=tests/tools/gateway --proto_path=tools/gateway "--python_out=$modules" \
  route_guide.proto grpc_health.proto grpc_reflection.proto rpc_status.proto
said=$(/usr/bin/python3 tests/tools/gateway/route_client.py "$address" "$modules") || fail "the client failed"
[[ $said == "all well" ]] || fail "the client said: $said"

# A clean stop.
kill -TERM "${pids[1]}"
wait "${pids[1]}" || fail "the gateway ended with $?"

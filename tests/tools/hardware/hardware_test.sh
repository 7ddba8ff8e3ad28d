#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/dev/hardware.sh alone, and on two sides at once: both write a report with all steps. The probes are real, on softdc; the programs
# around them are stubs.
set -euo pipefail
source tests/tools/dev/expect.sh

export SLUICE_HARDWARE_BIN=$TEST_TMPDIR/bin SOFTDC_DOMAIN=test-$$
port=$((20000 + $$ % 10000))
export SLUICE_HARDWARE_PORT=$port
mkdir -p "$TEST_TMPDIR"/bin/{tools/hardware,tests/transport/softdc/conformance,examples/{echo,kv_store,blockstore,flow}}
cp tools/hardware/hardware_probe "$TEST_TMPDIR/bin/tools/hardware/"
cat >"$TEST_TMPDIR/stub" <<'STUB'
#!/usr/bin/env bash
# A server says that it listens and stays; everything else says what it was asked and ends.
case $0:${1:-} in
  *_server:* | *publisher:* | *sluice_perf:serve)
    echo "listening on x"
    exec tail -f /dev/null
    ;;
  *conformance_test:*)
    if [[ -n ${INTERRUPTS:-} ]]; then
      echo $$ >"$INTERRUPTS"
      kill -INT -- "-$GROUP"
      exec tail -f /dev/null
    fi
    echo "[  FAILED  ] one of them on $CONFORMANCE_DEVICE" && exit 1
    ;;
esac
echo "asked: ${0##*/} $*"
STUB
chmod +x "$TEST_TMPDIR/stub"
for program in tools/{sluice_info,sluice_perf,softdc_run} tests/transport/softdc/conformance/conformance_test \
  examples/echo/echo_{server,client} examples/kv_store/kv{_server,} examples/blockstore/blockstore_{server,client} \
  examples/flow/{publisher,subscriber}; do
  cp "$TEST_TMPDIR/stub" "$TEST_TMPDIR/bin/$program"
done
run() { tools/dev/hardware.sh --device=softdc0 "$@"; }

expect 1 'usage: ./dev hardware' run --lisen x:1
expect 1 'HOST:PORT is wanted' run --listen host
expect 1 'needs a value' run --peer
expect 1 'one of them on each host' run --listen a:1 --peer b:2
expect 1 'number of a CPU' run --cpu two
expect 1 'there are: .*softdc0' tools/dev/hardware.sh --device mlx5_77

run --out "$TEST_TMPDIR/alone" >"$TEST_TMPDIR/alone.out" 2>&1
expect 0 'peer +none: both ends on this host' cat "$TEST_TMPDIR/alone/report.txt"
expect 0 'step +conformance suite: failed \(exit code 1\)' cat "$TEST_TMPDIR/alone/report.txt"
expect 0 'one of them on softdc0' cat "$TEST_TMPDIR/alone/conformance-suite.log"
expect 0 'asked: echo_client --server=[0-9.]+:[0-9]+ --device=softdc0' cat "$TEST_TMPDIR/alone/report.txt"
expect 0 '"name": ?"sluice_perf rpc"' cat "$TEST_TMPDIR/alone/report.json"

# A port stays with the name; perftest has an option of its own for it.
printf '#!/bin/sh\necho "asked: ib_send_lat $*"\n' >"$TEST_TMPDIR/bin/ib_send_lat"
chmod +x "$TEST_TMPDIR/bin/ib_send_lat"
cat >"$TEST_TMPDIR/bin/tools/softdc_run" <<'STUB'
#!/usr/bin/env bash
exec "$@"
STUB
PATH=$TEST_TMPDIR/bin:$PATH tools/dev/hardware.sh --device=softdc0:1 --out "$TEST_TMPDIR/port" >"$TEST_TMPDIR/port.out" 2>&1
expect 0 'asked: echo_client --server=[0-9.]+:[0-9]+ --device=softdc0:1' cat "$TEST_TMPDIR/port/report.txt"
expect 0 'asked: ib_send_lat -F -d softdc0 -i 1 ' cat "$TEST_TMPDIR/port/perftest-ib_send_lat.log"

SOFTDC_CONFIG='streams { max_log_errored: 0 }' run --listen "127.0.0.1:$port" --out "$TEST_TMPDIR/a" >"$TEST_TMPDIR/a.out" 2>&1 &
listener=$!
SOFTDC_CONFIG='unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR }' run --peer "127.0.0.1:$port" --out "$TEST_TMPDIR/b" \
  >"$TEST_TMPDIR/b.out" 2>&1
wait "$listener"
expect 0 'step +example echo: served' cat "$TEST_TMPDIR/a/report.txt"
expect 0 'step +example echo: ok' cat "$TEST_TMPDIR/b/report.txt"
expect 0 '^streams . max_log_errored: 0 .$' cat "$TEST_TMPDIR/a/report.dials"
expect 0 '^unknowns . wrong_dc_key: REMOTE_ACCESS_ERROR .$' cat "$TEST_TMPDIR/b/report.dials"
[[ $(wc -l <"$TEST_TMPDIR/a/steps") -eq 9 && $(wc -l <"$TEST_TMPDIR/b/steps") -eq 9 ]]

# What an earlier run left in the folder is no report of this one.
mv "$TEST_TMPDIR/bin/tools/hardware/hardware_probe" "$TEST_TMPDIR/real_probe"
cat >"$TEST_TMPDIR/bin/tools/hardware/hardware_probe" <<STUB
#!/usr/bin/env bash
case "\$*" in *--report*) exit 1 ;; esac
exec "$TEST_TMPDIR/real_probe" "\$@"
STUB
chmod +x "$TEST_TMPDIR/bin/tools/hardware/hardware_probe"
expect 1 'there is no report' run --out "$TEST_TMPDIR/alone"

# Ctrl-C ends it and what it runs, which has a process group of its own.
set -m
got=0
INTERRUPTS=$TEST_TMPDIR/pid bash -c 'export GROUP=$$; exec tools/dev/hardware.sh --device=softdc0 --out "$TEST_TMPDIR/interrupted"' &
wait $! || got=$?
set +m
[[ $got -eq 130 ]] || { echo "wanted status 130 after SIGINT, got $got" && exit 1; }
expect 1 'No such process' kill -0 "$(<"$TEST_TMPDIR/pid")"

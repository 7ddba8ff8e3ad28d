#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: pages.sh [--shots=DIR]
# Checks the status page in a headless Chromium (Debian's package): it writes nothing to the console, and its numbers are those of
# sluice_stat, after four callers have called, one of which was killed meanwhile. Then it shows a stream that is reset, while 64
# callers call.
# With --shots, writes screenshots to DIR: at two widths, light and dark, and before and after the reset.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

shots=
case ${1:-} in
  "") ;;
  --shots=?*) shots=$(realpath -m "${1#*=}") ;;
  *) die "usage: ./dev pages [--shots=DIR]" ;;
esac

tools/dev/install.sh chromium curl
step "building the echo server and the tools"
bazel build //examples/echo:echo_server //tests/tools/pages:all //tools:sluice_perf //tools:sluice_stat

work=$(mktemp -d)
pids=()
finish() {
  [[ ${#pids[@]} -eq 0 ]] || kill "${pids[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$work"
}
trap finish EXIT

# waits_for DESCRIPTION COMMAND...
waits_for() {
  local what=$1
  shift
  for ((i = 0; i < 300; ++i)); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  die "no $what within 30 s"
}
# serve PROGRAM: sets $address and $url.
serve() {
  "$1" --listen=127.0.0.1:0 --device=softdc0 --metrics=0 >"$work/server" 2>&1 &
  pids+=($!)
  waits_for "listening server" grep -q '^pages at ' "$work/server"
  address=$(sed -n 's/^listening on //p' "$work/server")
  url=$(sed -n 's/^pages at //p' "$work/server")
}
serve bazel-bin/examples/echo/echo_server

# browse NAME URL ARGUMENT...: Chromium's output in $work/NAME.out, what it logs in $work/NAME.log.
browse() {
  local name=$1 at=$2 root=()
  shift 2
  [[ $(id -u) -ne 0 ]] || root=(--no-sandbox) # Chromium refuses root with its sandbox
  timeout 120 chromium --headless=new "${root[@]}" --disable-gpu --hide-scrollbars --no-first-run --disable-extensions \
    --user-data-dir="$work/profile" --enable-logging=stderr --virtual-time-budget=5000 "$@" "$at" \
    >"$work/$name.out" 2>"$work/$name.log" || die "chromium failed: $(tail -3 "$work/$name.log")"
}
is_quiet() {
  ! grep -q 'CONSOLE' "$work/$1.log" || die "the page wrote to the console: $(grep -m3 CONSOLE "$work/$1.log")"
}

echo '<script>console.error("seen")</script>' >"$work/loud.html"
browse loud "file://$work/loud.html" --dump-dom
grep -q 'CONSOLE.*seen' "$work/loud.log" || die "errors on the console are not seen: the check would prove nothing"

step "calling it"
call() { exec bazel-bin/tools/sluice_perf rpc --server="$address" --device=softdc0 "$@" >/dev/null 2>&1; }
for size in 64 400 4000; do
  call --duration=1h --rate=300 --size="$size" &
  pids+=($!)
done
call --duration=1h --rate=2000 --size=1000 --lanes=off &
victim=$!
pids+=("$victim")
count_of() { curl -fsS "${url}status.json" | tr '{' '\n' | sed -n "s/^\"name\":\"$1\",\"value\":\"\\([0-9]*\\)\".*/\\1/p"; }
has_peers() { [[ $(count_of peers) -eq $1 ]]; }
waits_for "four callers" has_peers 4
if [[ -n $shots ]]; then
  step "taking screenshots"
  mkdir -p "$shots"
  for look in light dark; do
    scheme=(--blink-settings=preferredColorScheme=1)
    [[ $look = light ]] || scheme=(--blink-settings=preferredColorScheme=0)
    for size in 1200,1240 400,1500; do
      browse shot "$url" "${scheme[@]}" --window-size="$size" --screenshot="$work/shot.png"
      is_quiet shot
      mv "$work/shot.png" "$shots/status-${size%,*}-$look.png"
    done
  done
fi

step "killing a caller"
kill -KILL "$victim"
waits_for "end of the killed caller" has_peers 3

step "comparing the page with sluice_stat"
kill "${pids[@]:1}" 2>/dev/null || true
waits_for "end of the callers" has_peers 0
browse page "$url" --dump-dom --window-size=1200,1200
is_quiet page
method=/sluice.examples.echo.Echo/Say
bazel-bin/tools/sluice_stat --server="$address" --device=softdc0 --count=1 >"$work/stat"
# Calls, errors, calls in flight and three quantiles, with units of one letter case.
stat=$(awk -v method="$method" '$1 == method { print $2, $3, $4, $5 $6, $7 $8, $9 $10 }' "$work/stat")
row=$(grep -o "<tr data-method=\"$method\">.*" "$work/page.out" | sed 's,</tr>.*,,')
page=
for value in started errors in_flight p50 p99 p999; do
  text=$(sed -n "s/.*data-value=\"$value\">\\([^<]*\\)<.*/\\1/p" <<<"$row" | tr -d ', ' | sed 's/µ/u/')
  page+="${page:+ }$text"
done
[[ -n $stat && $stat = "$page" ]] || die "the page says '$page', sluice_stat says '$stat'"
step "calls, errors, in flight, p50, p99, p99.9 on the page and in sluice_stat: $page"
kill "${pids[@]}" 2>/dev/null || true
wait || true
pids=()

step "resetting a stream while 64 callers call"
# In softdc a reset takes microseconds; with this server 20 s.
serve bazel-bin/tests/tools/pages/slow_reset_server
for ((i = 0; i < 64; ++i)); do
  call --duration=1h --rate=$((i < 56 ? 5 : 100)) --size=64 --lanes=off &
  pids+=($!)
done
waits_for "64 callers" has_peers 64
bazel-bin/tests/tools/pages/deaf_client --device=softdc0 --server="$address" --timeout=60s >"$work/deaf" 2>&1 &
pids+=($!)
resets() { [[ $(curl -fsS "${url}status.json" | grep -o '"streams_resetting":1' | wc -l) -eq $1 ]]; }
# page_says COUNT: on the page, COUNT DCIs reset streams.
page_says() {
  browse page "$url" --dump-dom --window-size=1200,1200
  is_quiet page
  local resetting
  resetting=$(grep -oE '[1-9][0-9]* resetting' "$work/page.out" | wc -l) || true # 0: grep finds nothing
  [[ $resetting -eq $1 ]]
}
picture() {
  [[ -n $shots ]] || return 0
  browse shot "$url" --blink-settings=preferredColorScheme=1 --window-size=1200,1100 --screenshot="$work/shot.png"
  is_quiet shot
  mv "$work/shot.png" "$shots/$1-1200-light.png"
}
calls() { curl -fsS "${url}status.json" | sed -n 's/.*"name":"\/sluice.examples.echo.Echo\/Say","started":"\([0-9]*\)".*/\1/p'; }
waits_for "stream in error" resets 1
before=$(calls)
page_says 1 || die "the page does not show the stream that is being reset"
picture stream-reset
resets 1 || die "the reset ended before the page was drawn"
(($(calls) > before)) || die "no call started during the reset"
waits_for "end of the reset" resets 0
waits_for "end of the caller that received nothing" has_peers 64
grep -q UNAVAILABLE "$work/deaf" || die "the caller that received nothing says: $(cat "$work/deaf")"
page_says 0 || die "the page shows a stream in error after its reset"
picture stream-after
step "the page shows a stream in error, its reset, and calls of 64 others meanwhile: $before, then $(calls)"

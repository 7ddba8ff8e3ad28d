#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: readme_test.sh README.md
# Runs the commands of the README as they stand there: those of its blocks of sh, each block in a shell of its own. Left out are
# those that begin with ./dev (they install and build; CI and ./dev fresh run them) and those whose program this machine has not.
# What follows a server in the background is tried until the server is there.
set -euo pipefail
readme=$1
export SOFTDC_DOMAIN=readme-$$
# The README has port numbers, and not everywhere does the test have a network of its own: one of them on a host at a time.
exec 4>"/tmp/sluice-readme-test-$UID.lock"
flock 4

# bazel-bin/… is what bazel put beside this test.
here=$PWD
mkdir "$TEST_TMPDIR/clone"
ln -s "$here" "$TEST_TMPDIR/clone/bazel-bin"

run_block() {
  local line program background=
  while IFS= read -r line <&3; do
    case $line in
      "" | "./dev "*) continue ;;
    esac
    # The program, or the one that softdc_run runs.
    program=${line%% *}
    [[ $program != */softdc_run ]] || program=$(awk '{ print $2 }' <<<"$line")
    if ! command -v "$program" >/dev/null; then
      if [[ $program == bazel-bin/* ]]; then
        echo "the README runs $program, which is no program" >&2
        return 1
      fi
      echo "skipped, no $program here: $line"
      continue
    fi
    echo "\$ $line"
    if [[ $line =~ \&[[:space:]]*(#.*)?$ ]]; then
      eval "$line"
      background=yes
      continue
    fi
    local end=$((SECONDS + 60))
    until eval "$line"; do
      if [[ -z $background ]] || ((SECONDS > end)); then
        echo "failed: $line" >&2
        return 1
      fi
      sleep 0.1
    done
  done
}

blocks=$TEST_TMPDIR/block
awk -v to="$blocks" '/^```sh$/ { on = 1; ++n; next } /^```/ { on = 0 } on { print > (to "." n) }' "$readme"
count=0
for block in "$blocks".*; do
  (
    cd "$TEST_TMPDIR/clone"
    status=0
    run_block 3<"$block" 4>&- </dev/null || status=1
    mapfile -t servers < <(jobs -p)
    [[ ${#servers[@]} -eq 0 ]] || kill "${servers[@]}" 2>/dev/null || true
    wait
    exit "$status"
  )
  count=$((count + 1))
done
[[ $count -ge 4 ]] || {
  echo "only $count blocks of commands were found in $readme" >&2
  exit 1
}

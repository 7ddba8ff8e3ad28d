#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: mutations.sh [seeds, default 200] [messages of each, default 20000] [names]
# Makes the mistakes of tests/simulation/mutations one after the other in a copy of the committed tree, builds the simulation
# with each, and says which seed noticed it first and what it called it. Fails unless each is noticed, and unless the same seeds
# pass without a mistake (try_mutations).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

seeds=${1:-200}
messages=${2:-20000}
shift $(($# < 2 ? $# : 2))
names=("$@")
[[ ${#names[@]} -gt 0 ]] ||
  mapfile -t names < <(find tests/simulation/mutations -name '*.patch' -printf '%f\n' | sed 's/\.patch$//' | sort)

tools/dev/install.sh git
tree=$(mktemp -d)
build=(bazel --output_user_root="$tree/bazel")
# shellcheck disable=SC2317  # called by the trap
finish() {
  "${build[@]}" shutdown >"$tree/log" 2>&1 || true
  chmod -R u+w "$tree"
  cd /
  rm -rf "$tree"
}
trap finish EXIT
git clone --quiet . "$tree/sluice"
[[ ! -e user.bazelrc ]] || cp user.bazelrc "$tree/sluice"
cd "$tree/sluice"

patches=()
for name in "${names[@]}"; do patches+=("tests/simulation/mutations/$name.patch"); done
step "${#patches[@]} mutations, $seeds seeds of $messages messages each"
tools/dev/try_mutations "${build[*]} build --noshow_progress //tests/simulation:simulate" \
  bazel-bin/tests/simulation/simulate "--seed 1 --seeds $seeds --messages $messages --no_shrink" "${patches[@]}"

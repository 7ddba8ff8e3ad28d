#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: mutations.sh [names of patches, without folder and suffix; default: all of the table]
#        mutations.sh --check
# Makes the mistakes of tools/dev/mutations.txt one after the other in a copy of the committed tree, builds the program that the
# row names with each, runs it with the row's arguments, and prints what it noticed. Fails unless each mistake is noticed, and
# unless the same arguments pass without a mistake (try_mutations). With --check only checks the table: rows, targets, and that
# each patch applies to the tree as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh
# shellcheck source=tools/dev/mutation_table.sh
source tools/dev/mutation_table.sh

table=tools/dev/mutations.txt
if [[ ${1:-} == --check ]]; then
  check_mutations "$table"
  exit
fi

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

check_mutations "$table" || die "the table of mutations is wrong (above)"
group_mutations "$@" || die "see $table"
failed=0
for run in "${mutation_runs[@]}"; do
  target=${run%% *}
  arguments=${run#* }
  program=bazel-bin/${target#//}
  read -ra patches <<<"${mutation_runs_of[$run]}"
  step "$target $arguments: ${#patches[@]} mutations"
  status=0
  tools/dev/try_mutations "${build[*]} build --noshow_progress $target" "${program/://}" "$arguments" "${patches[@]}" || status=$?
  [[ $status -lt 2 ]] || exit $status # a patch may still be in the tree
  [[ $status -eq 0 ]] || failed=1
done
exit $failed

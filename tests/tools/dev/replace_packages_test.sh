#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: replace_packages_test.sh
# tools/package/replace.sh removes earlier versions of our packages, and no other file of the folder.
set -euo pipefail

fail() {
  echo "replace_packages_test: $*" >&2
  exit 1
}

built=$TEST_TMPDIR/built
output=$TEST_TMPDIR/output
mkdir -p "$built" "$output"
touch "$built/libsluice0_2_amd64.deb" "$built/python3-sluice_2_all.deb"
# sluice-tools was built before, and is not now; the others are of somebody else.
touch "$output"/{libsluice0_1_amd64,sluice-tools_1_amd64,libsluice0-extra_1_amd64,other_1_amd64}.deb "$output/notes"
for _ in 1 2; do
  tools/package/replace.sh "$built" "$output"
  left=$(cd "$output" && printf '%s\n' * | LC_ALL=C sort | tr '\n' ' ')
  expected='libsluice0-extra_1_amd64.deb libsluice0_2_amd64.deb notes other_1_amd64.deb python3-sluice_2_all.deb '
  [[ $left == "$expected" ]] || fail "the folder has: $left"
done
tools/package/replace.sh "$built" "$TEST_TMPDIR/new/folder"
[[ -f $TEST_TMPDIR/new/folder/libsluice0_2_amd64.deb ]] || fail "a folder that was not there was not made"

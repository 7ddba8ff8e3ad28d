#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: embed.sh
# Builds and runs examples/embedding as a Bazel project elsewhere that takes Sluice in as a repository. (With pkg-config
# and CMake //tests/tools/install does it.) What is compiled here has other flags and other paths than in this tree.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

sluice=$PWD
folder=$(mktemp -d)
finish() {
  (cd "$folder/hello" && bazel --output_base="$folder/output" shutdown) >/dev/null 2>&1 || true
  chmod -R u+w "$folder"
  rm -rf "$folder"
}
trap finish EXIT
cp -r examples/embedding "$folder/hello"
cd "$folder/hello"
rm -f bazel-*
sed -i "s#path = \"../..\"#path = \"$sluice\"#" WORKSPACE
step "building examples/embedding in $folder with Sluice from $sluice"
bazel --output_base="$folder/output" build --disk_cache="$HOME/.cache/sluice/bazel" //:hello
said=$(bazel-bin/hello Ada)
[[ $said == 'hello, Ada' ]] || die "it said '$said'"
step "it said '$said'"

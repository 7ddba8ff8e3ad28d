#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the golden files of generator_test anew, with the plugin built from this tree. Look at the diff before you
# commit it: it is what users' code will be compiled against.
set -eu
cd "$(dirname "$0")/../../.."
bazel build //middleware/codegen:protoc-gen-sluice
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
folder=tests/middleware/codegen/testdata
protoc -I. --plugin=protoc-gen-sluice=bazel-bin/middleware/codegen/protoc-gen-sluice --sluice_out="$out" \
  $folder/shop.proto $folder/no_package.proto $folder/streaming.proto
for file in "$out"/$folder/*; do
  cp "$file" "$folder/$(basename "$file").golden"
done

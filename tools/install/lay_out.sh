#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: lay_out MANIFEST HEADERS FOLDER
# Copies what the manifest names (kind, file, place; see stage.bzl) to its place below FOLDER. Of the headers only those are
# copied that HEADERS (headers.txt) lists as public, and those that they include, directly or not.
set -euo pipefail
manifest=$1
headers=$2
folder=$3

declare -A file_of=()
todo=()
while IFS=$'\t' read -r kind file place; do
  case $kind in
    header) file_of[$place]=$file ;;
    file) install -D -m 644 "$file" "$folder/$place" ;;
    binary)
      install -D -m 755 "$file" "$folder/$place"
      strip --strip-debug "$folder/$place"
      ;;
  esac
done <"$manifest"

while read -r kind place; do
  [[ $kind == public ]] || continue
  [[ -n ${file_of[$place]:-} ]] || {
    echo "lay_out: $headers lists $place as public, and no library of 'headers_of' has it" >&2
    exit 1
  }
  todo+=("$place")
done <"$headers"

while [[ ${#todo[@]} -gt 0 ]]; do
  included=()
  for place in "${todo[@]}"; do
    file=${file_of[$place]:-}
    # A name that is not ours is one of the compiler's or of another library.
    [[ -n $file && ! -e $folder/include/sluice/$place ]] || continue
    install -D -m 644 "$file" "$folder/include/sluice/$place"
    mapfile -t -O "${#included[@]}" included < <(sed -nE 's/^#include "([^"]+)".*/\1/p' "$file")
  done
  todo=("${included[@]}")
done

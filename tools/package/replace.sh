#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: replace.sh BUILT OUTPUT
# Copies the Debian packages in BUILT to OUTPUT, and removes earlier versions of our packages there. Other packages in OUTPUT stay.
set -euo pipefail

built=$1
output=$2
mkdir -p "$output"
while read -r name; do
  rm -f "$output/${name}"_*.deb
done < <(sed -n 's/^Package: //p' "$(dirname "${BASH_SOURCE[0]}")/control")
cp "$built"/*.deb "$output/"

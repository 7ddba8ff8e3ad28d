#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: format.sh [--check]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

tools/dev/install.sh clang-format
files=()
lines_of files cxx_files
if [[ ${1:-} == --check ]]; then
  step "format: ${#files[@]} sources"
  clang-format --dry-run -Werror "${files[@]}" || die "run ./dev format"
else
  clang-format -i "${files[@]}"
fi

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks that only read sources and objects. A build that fails is a failure, and the others still run. What failed is printed
# once more at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=tools/dev/common.sh
source tools/dev/common.sh

status=0
log=$(mktemp)
failed=$(mktemp)
trap 'rm -f "$log" "$failed"' EXIT
run() {
  local what=$1
  shift
  step "$what"
  "$@" 2>&1 | tee "$log" && return
  status=1
  {
    printf 'failed: %s\n' "$what"
    grep -v 'not a failure' "$log" | tail -5
  } >>"$failed"
}

# list ARRAY COMMAND...
list() {
  lines_of "$@" && return
  status=1
  printf 'failed: list: %s\n' "${*:2}" >>"$failed"
}

tools/dev/install.sh
run "building //..." bazel build --keep_going //...

# Bazel says which objects the current sources make; the output folder may hold older ones.
root=$(bazel info execution_root 2>/dev/null)
all_objects() {
  bazel aquery --output=text 'mnemonic("CppCompile", //... except attr(tags, manual, //...))' 2>/dev/null |
    grep -o 'bazel-out/[^], ]*\.o\b' | sort -u | sed "s|^|$root/|"
}
headers() { cxx_files | grep '\.h$'; }
tests() { find tests -name '*_test.cc' | sort; }
# (Claims and answers of hardware probes are compared with each other as texts, and kept in reports.)
programs() { cxx_files | grep -E '^(middleware|transport|tools|examples)/' | grep -v '^tools/hardware/'; }
# The test of the check of pipes has in its texts what is looked for.
scripts() {
  git ls-files -z ':!*.md' ':!*.cc' ':!*.h' ':!tests/tools/dev/check_pipes_test.sh' |
    xargs -0 awk 'FNR == 1 { found = 0 } !found && /^#!.*(^|[^a-z])(ba)?sh([^a-z]|$)|^# shellcheck shell=/ { print FILENAME; found = 1 }'
}
objects=() sources=() tests=() pages=() prose=() decisions=() texts=() scripts=() headers=()
list objects all_objects
list sources cxx_files
list tests tests
list texts programs
list scripts scripts
list headers headers
# (The conformance page is written out of this one.)
list pages git ls-files '*.md' ':!tools/dev/conformance_head.md'
# The pages of decisions are records, and stay as they were written.
list prose git ls-files '*README.md' 'docs/*.md' ':!docs/decisions/0*' ':!docs/models/*'
list decisions git ls-files 'docs/decisions/0*.md'

run "symbols: ${#objects[@]} objects" tools/dev/check_symbols tools/dev/symbols_allowed.txt "${objects[@]}"
run "rooms: ${#sources[@]} sources" tools/dev/check_rooms tools/dev/rooms.txt "${sources[@]}"
run "facts: ${#tests[@]} test sources" tools/dev/check_facts docs/facts.md "${tests[@]}"
run "docs: ${#pages[@]} pages" tools/dev/check_docs "${pages[@]}"
run "prose: ${#prose[@]} pages" tools/dev/check_prose tools/dev/banned_idioms.txt "${prose[@]}"
run "decisions: ${#decisions[@]} pages" tools/dev/check_decisions docs/decisions/README.md "${decisions[@]}"
# The map of the tree: everything that it names has to be there.
map=(docs/architecture.md docs/rooms.svg docs/call-path.svg)
run "names: ${#map[@]} pages" tools/dev/check_names "${map[@]}" -- "${sources[@]}"
run "errors" tools/dev/check_errors docs/errors.md tools/dev/errors_left_out.txt "${sources[@]}"
run "texts: ${#texts[@]} sources" tools/dev/check_texts tools/dev/banned_idioms.txt "${texts[@]}"
run "pipes: ${#scripts[@]} scripts" tools/dev/check_pipes "${scripts[@]}"
run "mutations" tools/dev/mutations.sh --check
run "banners: ${#headers[@]} headers" tools/dev/check_banners "${headers[@]}" -- middleware/api/options.h
run "words of banners: ${#headers[@]} headers" tools/dev/check_banners --words tools/dev/banned_idioms.txt "${headers[@]}"
run "file lengths" tools/dev/check_lengths "${sources[@]}"
cat "$failed"
exit $status

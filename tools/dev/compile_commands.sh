#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Writes compile_commands.json (for clang-tidy and editors) from what Bazel would run. Needs a build for the
# generated headers; flags that only GCC knows are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# aquery prints one shell-quoted argument per line, from "Command Line: (exec gcc \" to the line that ends with ")".
bazel aquery --output=text 'mnemonic("CppCompile", //...)' 2>/dev/null | awk -v directory="$PWD" '
  function quote(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }
  sub(/^ *Command Line: \(exec /, "") { reading = 1; command = ""; source = ""; previous = "" }
  reading {
    last = sub(/\)$/, "")
    sub(/ \\$/, ""); sub(/^ +/, "")
    if (previous == "-c") source = $0
    previous = $0
    if ($0 !~ /^(-fno-canonical-system-headers|-Wno-free-nonheap-object|-Werror)$/) command = command " " $0
    if (!last) next
    reading = 0
    if (source ~ /^(bazel-out|external)\//) next
    printf "%s{\"directory\": %s, \"file\": %s, \"command\": %s}", (count++ ? ",\n" : "[\n"),
      quote(directory), quote(source), quote(substr(command, 2))
  }
  END { if (!count) exit 1; print "\n]" }' >compile_commands.json.new
mv compile_commands.json.new compile_commands.json

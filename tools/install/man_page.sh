#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: man_page.sh PROGRAM         writes its manual page to standard output
#        man_page.sh --list          names of the programs that have one
# A page has the text of the program's own --help. This script adds a short description and the words before the options.
set -euo pipefail

declare -A is=(
  [sluice_call]="call a method of a reflecting server with JSON"
  [sluice_gateway]="pass calls between gRPC and Sluice"
  [sluice_info]="show devices, settings and options of Sluice on this machine"
  [sluice_perf]="measure calls and flows of messages"
  [sluice_stat]="show the state of a Sluice server"
  [softdc_run]="run a verbs program on softdc, the software DC NIC"
)
declare -A words=([sluice_perf]="rpc serve flow sink")

if [[ $1 == --list ]]; then
  printf '%s\n' "${!is[@]}" | sort
  exit 0
fi
program=$1
name=$(basename "$program")
[[ -n ${is[$name]:-} ]] || {
  echo "man_page.sh: nothing is known of '$name'" >&2
  exit 1
}

# Options become items of a list, everything else stays as it is laid out.
roff() {
  awk '
    function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); return text }
    function guard(text) { return text ~ /^[.\x27]/ ? "\\&" text : text }
    function verbatim(on) { if (on != laid_out) print on ? ".nf" : ".fi"; laid_out = on }
    /^  --/ {
      verbatim(0)
      match($0, /^  --[^ ]+( [A-Z]+)?/)
      print ".TP\n\\fB" plain(substr($0, 3, RLENGTH - 2)) "\\fR"
      text = substr($0, RLENGTH + 1); sub(/^ +/, "", text)
      print guard(plain(text)); in_option = 1; next
    }
    in_option && /^    / { sub(/^ +/, ""); print guard(plain($0)); next }
    { if (in_option && $0 == "") { in_option = 0; print ".PP"; next }
      in_option = 0; verbatim(1); print guard(plain($0)) }
    END { verbatim(0) }'
}

printf '.TH %s 1 "" Sluice Sluice\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n' "${name^^}" "$name" "${is[$name]}"
"$program" --help | roff
for word in ${words[$name]:-}; do
  printf '.SS %s %s\n' "$name" "$word"
  "$program" "$word" --help | roff
done
exit_status="0 on success, 1 on failure, 2 on an invalid option."
[[ $name != softdc_run ]] || exit_status="The status of the program; 2 on an invalid option."
printf '.SH EXIT STATUS\n%s\n' "$exit_status"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: alerts_test.sh ALERTS TESTS
# Checks the alert rules with promtool (Debian's prometheus), and that they fire for the series in TESTS.
set -euo pipefail
if ! command -v promtool >/dev/null; then
  echo "SKIPPED: promtool is not installed, so the alert rules were not checked. To check them: ./dev install prometheus" >&2
  exit 0
fi
folder=${TEST_TMPDIR:?}
cp "$1" "$folder/prometheus_alerts.yml"
cp "$2" "$folder/alerts_test.yml"
promtool check rules "$folder/prometheus_alerts.yml"
promtool test rules "$folder/alerts_test.yml"
# The check finds what is wrong.
sed 's/sluice_server_fresh == 0/sluice_server_fresh == /' "$1" >"$folder/prometheus_alerts.yml"
if promtool check rules "$folder/prometheus_alerts.yml" >/dev/null 2>&1; then
  echo "promtool accepts a broken rule" >&2
  exit 1
fi

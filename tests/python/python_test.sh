#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: python_test.sh MODULE
# Installs the staged prefix, and runs the tests of tests/python/MODULE.py against it.
set -euo pipefail

prefix=$TEST_TMPDIR/prefix
tools/install/copy.sh tools/install/prefix "$prefix"
# It finds libsluice_c.so.0 beside itself.
export PYTHONPATH=$prefix/lib/python3/dist-packages:$PWD/tests/python
export PYTHONDONTWRITEBYTECODE=1
export SOFTDC_DOMAIN=python-test-$$
exec /usr/bin/python3 tests/python/run_tests.py "$1"

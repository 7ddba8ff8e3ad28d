#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Event lines, XML and logs below are cut from what Bazel 4.2 and GoogleTest 1.12 write.
set -euo pipefail
source tests/tools/dev/expect.sh

events=$TEST_TMPDIR/events.json

# add_target NAME: a configured test target.
add_target() {
  printf '{"id":{"targetConfigured":{"label":"//t:%s"}},"children":[{"targetCompleted":{"label":"//t:%s"}}],"configured":{"targetKind":"cc_test rule","testSize":"SMALL"}}\n' \
    "$1" "$1" >>"$events"
}
# add_result NAME STATUS [ATTEMPT]: its result; the XML comes from stdin, the log from NAME.log where a test writes one.
add_result() {
  local base=$TEST_TMPDIR/$1
  cat >"$base.xml"
  printf '{"id":{"testResult":{"label":"//t:%s","run":1,"shard":1,"attempt":%s}},"testResult":{"testActionOutput":[{"name":"test.log","uri":"file://%s.log"},{"name":"test.xml","uri":"file://%s.xml"}],"testAttemptDurationMillis":"54","status":"%s","executionInfo":{"strategy":"local"}}}\n' \
    "$1" "${3:-1}" "$base" "$base" "$2" >>"$events"
}
start() {
  rm -f "$TEST_TMPDIR"/*.{xml,log}
  printf '{"id":{"targetConfigured":{"label":"//t:library"}},"configured":{"targetKind":"cc_library rule"}}\n' >"$events"
}
count() { tools/dev/count_cases "$1" "$events"; }

good_xml='<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="2" failures="0" disabled="0" errors="0" name="AllTests">
  <testsuite name="A" tests="2" failures="0" disabled="0" skipped="0" errors="0">
    <testcase name="X" status="run" result="completed" time="0" classname="A" />
    <testcase name="Y" status="run" result="completed" time="0" classname="A" />
  </testsuite>
</testsuites>'
script_xml='<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="t/script" tests="1" failures="0" errors="0">
    <testcase name="t/script" status="run" duration="0" time="0"></testcase>
      <system-out>
<![CDATA[ <testcase name="only printed"> <failure message="too"> ]]>
      </system-out>
    </testsuite>
</testsuites>'
died_xml='<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="t/died" tests="1" failures="0" errors="1">
    <testcase name="t/died" status="run" duration="0" time="0"><error message="exited with error code 134"></error></testcase>
    </testsuite>
</testsuites>'

# Cases are counted, not targets; a script is one case; a library is none.
start
add_target good && add_result good PASSED <<<"$good_xml"
add_target script && add_result script PASSED <<<"$script_xml"
expect 0 '^3 passed, 0 failed$' count 0

# A failure, a skipped and a disabled case; what the failure prints is not taken for cases.
start
add_target mixed && add_result mixed FAILED <<'XML'
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests">
  <testsuite name="B" tests="4" failures="1" disabled="1" skipped="1" errors="0">
    <testcase name="Ok" status="run" result="completed" classname="B" />
    <testcase name="Fail" status="run" result="completed" classname="B">
      <failure message="t.cc:2&#x0A;]]&gt; &lt;testcase name=" type=""><![CDATA[t.cc:2
]]>]]&gt;<![CDATA[ <testcase name="printed" status="run">
 <testcase name="printed too" status="run">]]></failure>
    </testcase>
    <testcase name="DISABLED_x" status="notrun" result="suppressed" classname="B" />
    <testcase name="Skip" status="run" result="skipped" classname="B">
      <skipped message="t.cc:3&#x0A;"><![CDATA[t.cc:3
]]></skipped>
    </testcase>
  </testsuite>
</testsuites>
XML
expect 1 '^1 passed, 1 failed, 2 skipped$' count 3

# A process that died is one failure beside the cases that its log shows as done.
start
printf '[ RUN      ] A.Ok\n[       OK ] A.Ok (0 ms)\n[ RUN      ] A.Crash\n' >"$TEST_TMPDIR/died.log"
add_target died && add_result died FAILED <<<"$died_xml"
expect 1 '^1 passed, 1 failed$' count 3

# So is one that died after writing its XML (a sanitizer's report at exit), and a script that failed.
start
add_target late && add_result late FAILED <<<"$good_xml"
expect 1 '^2 passed, 1 failed$' count 3
start
add_target script && add_result script FAILED <<<"${died_xml//died/script}"
expect 1 '^0 passed, 1 failed$' count 3

# A target that was not built has no result; an XML that is gone is none either.
start
add_target good && add_result good PASSED <<<"$good_xml"
add_target unbuilt
expect 1 '^2 passed, 1 failed$' count 1
expect 1 'unbuilt: no result' count 1
rm "$TEST_TMPDIR/good.xml"
expect 1 '^0 passed, 2 failed$' count 1

# A failing Bazel is never a pass, nor is a run without a case, nor an empty one.
start
add_target good && add_result good PASSED <<<"$good_xml"
expect 1 '^2 passed, 1 failed$' count 1
start
add_target hollow && add_result hollow PASSED <<<'<testsuites tests="0" name="AllTests"></testsuites>'
expect 1 '^0 passed, 1 failed$' count 0
start
expect 1 '^0 passed, 0 failed$' count 0

# The last attempt counts. A target that passed at a later attempt is named beside the count, which stays the last line.
flaky() {
  add_target "$1" && add_result "$1" FAILED 1 <<<"${died_xml//died/$1}"
  add_result "$1" PASSED 2 <<<"${script_xml//script/$1}"
}
last_line() { count "$@" 2>/dev/null | tail -n 1; }
start
flaky one
expect 0 '^1 passed, 0 failed$' count 0
expect 0 '^FLAKY 1: //t:one$' count 0
expect 0 '^failed and tried again: //t:one: /' count 0
expect 0 '^1 passed, 0 failed$' last_line 0
# Two are reported, three are a failure.
flaky two
expect 0 '^FLAKY 2: //t:one //t:two$' count 0
expect 0 '^2 passed, 0 failed$' count 0
flaky three
expect 1 '^FLAKY 3: //t:one //t:three //t:two$' count 0
expect 1 '^failed: 3 flaky tests, at most 2 are allowed$' count 0
expect 1 '^3 passed, 1 failed$' last_line 0
# A target that failed at each attempt is failed, not flaky.
start
add_target script && add_result script FAILED 1 <<<"${died_xml//died/script}"
add_result script FAILED 2 <<<"${died_xml//died/script}"
expect 1 '^0 passed, 1 failed$' count 3
without_flaky() { ! count "$@" 2>&1 | grep FLAKY; }
expect 0 '^$' without_flaky 3
# A result of an earlier run says once that it was flaky.
start
add_target old && add_result old FLAKY <<<"$script_xml"
expect 0 '^FLAKY 1: //t:old$' count 0
expect 0 '^1 passed, 0 failed$' count 0

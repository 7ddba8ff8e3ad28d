#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

rooms=$PWD/tools/dev/rooms.txt
checker=$PWD/tools/dev/check_rooms
cd "$TEST_TMPDIR"

# includes FILE HEADER: checks a file of that path that includes that header.
includes() {
  mkdir -p "$(dirname "$1")"
  printf '// a line\n#include <vector>\n#include "%s"\n' "$2" >"$1"
  "$checker" "$rooms" "$1"
}

expect 0 '' includes transport/queue/a.cc transport/path/b.h
expect 0 '' includes transport/queue/a.cc transport/queue/b.h
expect 0 '' includes transport/queue/a.cc absl/status/status.h
expect 0 '' includes transport/softdc/shm/a.cc transport/softdc/loop/b.h
expect 0 '' includes transport/softdc/a.cc transport/base/b.h
expect 0 '' includes transport/softdc/a.cc transport/verbs/verbs_api.h
expect 0 '' includes transport/softdc/a.cc transport/verbs/qp_init.h
expect 0 '' includes transport/device/a.cc transport/softdc/softdc.h
expect 0 '' includes middleware/api/a.cc transport/endpoint/endpoint.h
expect 0 '' includes transport/base/a.cc proto/error_detail.pb.h
expect 0 '' includes tests/transport/queue/a_test.cc transport/softdc/softdc.h

expect 1 '^transport/path/a.cc:3: includes transport/queue/b.h: .* not below' includes transport/path/a.cc transport/queue/b.h
expect 1 'not below' includes transport/endpoint/a.cc middleware/api/b.h
expect 1 'not below' includes transport/verbs/a.cc transport/device/b.h
expect 1 'only transport/device picks softdc' includes transport/queue/a.cc transport/softdc/softdc.h
expect 1 'only transport/device picks softdc' includes transport/verbs/a.cc transport/softdc/softdc.h
expect 1 'softdc knows only' includes transport/softdc/a.cc transport/verbs/handles.h
expect 1 'does not depend on tests' includes transport/queue/a.cc tests/support/b.h
expect 1 'is not in' includes transport/attic/a.cc transport/base/b.h
expect 1 'from the repository root' includes transport/queue/a.cc ../path/b.h
expect 2 'nothing would be proved' "$checker" "$rooms"

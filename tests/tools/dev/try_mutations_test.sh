#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh

try_mutations=$PWD/tools/dev/try_mutations
cd "$TEST_TMPDIR"

# The tree is one script; a patch is a line that is added to it. (git need not be there.)
mkdir bin
cat >bin/git <<'GIT'
#!/usr/bin/env bash
case "$1 $2" in
  'apply --reverse') sed -i '$ d' source.sh ;;
  *) grep -q . "$2" && cat "$2" >>source.sh ;;
esac
GIT
chmod +x bin/git
export PATH=$TEST_TMPDIR/bin:$PATH

# with SOURCE MUTATED_LINE...: tries these patches, each one line after that of the source.
with() {
  printf '#!/usr/bin/env bash\n%s\n' "$1" >source.sh
  shift
  rm -f ./*.patch program
  local n=0 line
  for line in "$@"; do
    n=$((n + 1))
    printf "%s\n" "$line" >"p$n.patch"
  done
  "$try_mutations" "${build:-cp source.sh program && chmod +x program}" ./program "${arguments:---seeds 3}" ./*.patch
}
passes=': passes'
fails="echo \"FAILED seed 2: invariant x, \$*\"; exit 1"

expect 0 '^p1: FAILED seed 2: invariant x, --seeds 3$' with "$passes" "$fails"
expect 0 '^p2: FAILED' with "$passes" "$fails" "$fails # too"
expect 0 '^p1: \[  FAILED  \] A\.B$' with "$passes" 'echo "[  FAILED  ] A.B"; exit 1'
arguments='--filter *' expect 0 '^p1: FAILED seed 2: invariant x, --filter \*$' with "$passes" "$fails"
expect 1 '^p1: NOT NOTICED$' with "$passes" ': passes too'
expect 1 '^p2: FAILED' with "$passes" ': passes too' "$fails"

# A program that fails without a mutation shows nothing.
expect 2 'without a mutation: status 1' with "$fails" "$fails # too"
expect 2 'without a mutation: status 139' with 'kill -SEGV $$' "$fails"
# The ends of a mutated program that are no failure of its test.
expect 1 '^p1: ERROR: status 139, and no test failed$' with "$passes" 'kill -SEGV $$'
expect 1 '^p1: ERROR: status 2, and no test failed$' with "$passes" 'echo "usage: program"; exit 2'
expect 1 '^p1: ERROR: status 1, and no test failed$' with "$passes" 'exit 1'
expect 1 '^p1: ERROR: status 134, and FAILED seed 1' with "$passes" 'echo FAILED seed 1; kill -ABRT $$'
expect 1 '^p1: ERROR: status 127' with "$passes" 'exec ./none'
# What was not built was not tried.
expect 2 'p1: the patch does not fit' with "$passes" ''
build='! grep -q error source.sh && cp source.sh program && chmod +x program'
expect 2 'p1: it does not build' with "$passes" 'error'
build='[[ -e program ]] || cp source.sh program; chmod +x program'
expect 2 'p1: the program is the one before' with "$passes" "$fails"
build=true
expect 2 'the build leaves no ./program' with "$passes" "$fails"
expect 2 'nothing would be proved' "$try_mutations" true ./program ''

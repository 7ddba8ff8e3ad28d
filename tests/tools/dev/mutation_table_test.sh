#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
source tests/tools/dev/expect.sh
source tools/dev/mutation_table.sh

table=$PWD/tools/dev/mutations.txt
cd "$TEST_TMPDIR"

# A patch applies if it says so. (git need not be there.)
mkdir bin
cat >bin/git <<'GIT'
#!/usr/bin/env bash
[[ "$1 $2" == 'apply --check' ]] && grep -q applies "$3"
GIT
chmod +x bin/git
export PATH=$TEST_TMPDIR/bin:$PATH

# A tree of three patches and two programs.
mkdir -p tests/a/mutations tests/b/mutations
for patch in tests/a/mutations/one tests/a/mutations/two tests/b/mutations/three; do echo applies >$patch.patch; done
echo 'cc_binary(name = "run")' >tests/a/BUILD
echo 'cc_binary(name = "other")' >tests/b/BUILD
one='tests/a/mutations/one.patch //tests/a:run --seed 1'
two='tests/a/mutations/two.patch //tests/a:run --seed 1'
three='tests/b/mutations/three.patch //tests/b:other --of calls --seed 7'

# with FUNCTION ROW...: calls the function for a table of these rows.
with() {
  local function=$1
  shift
  printf '%s\n' "$@" >table
  "$function" table
}

# What is read.
rows() {
  read_mutations "$1" || return
  local i
  for i in "${!mutation_patches[@]}"; do
    echo "$i|${mutation_patches[i]}|${mutation_targets[i]}|${mutation_arguments[i]}|"
  done
  echo "unnoticed: ${mutations_unnoticed[*]}"
}
expect 0 '^0\|tests/a/mutations/one.patch\|//tests/a:run\|--seed 1\|$' with rows "$one" "$three"
expect 0 '^1\|tests/b/mutations/three.patch\|//tests/b:other\|--of calls --seed 7\|$' with rows '# a comment' "$one" '' "$three"
expect 0 '^unnoticed: x.patch y.patch$' with rows 'unnoticed x.patch' "$one" 'unnoticed y.patch'
expect 0 '^unnoticed: $' with rows "$one"
for wrong in 'x.patch' 'x.patch //a:b' 'x.patch //a:b ' 'x.patch //a:b seed 1' 'x.patch a:b --seed 1' 'x.patch //a/b --seed 1' \
  'x.patch //a/:b --seed 1' 'x.patch //:b --seed 1' 'x.patch //a:b/c --seed 1' 'x.patch //a:b: --seed 1' 'x //a:b --seed 1' \
  ' x.patch //a:b --seed 1' 'unnoticed' 'unnoticed x' 'unnoticed x.patch --seed 1' 'noticed x.patch'; do
  expect 1 '^table:2: neither ' with read_mutations "$one" "$wrong"
done
expect 2 'nothing would be proved' with read_mutations '# none' 'unnoticed x.patch'
expect 2 'cannot read' read_mutations none

# What is held against the tree.
expect 0 '^$' with check_mutations "$one" "$two" "$three"
expect 0 '^$' with check_mutations "$one" 'unnoticed tests/a/mutations/two.patch' "$three"
expect 1 '^table: tests/a/mutations/two.patch has no row$' with check_mutations "$one" "$three"
expect 0 '^$' with check_mutations "$one" "$two" "$three" "$one --seeds 2"
expect 1 '^table: tests/a/mutations/one.patch has the same row twice$' with check_mutations "$one" "$two" "$three" "$one"
expect 1 '^table: tests/a/mutations/one.patch is noticed and unnoticed$' with check_mutations "$one" "$two" "$three" \
  'unnoticed tests/a/mutations/one.patch'
expect 1 '^table: there is no tests/a/mutations/four.patch$' with check_mutations "$one" "$two" "$three" "${one/one/four}"
expect 1 '^table: there is no tests/a/mutations/four.patch$' with check_mutations "$one" "$two" "$three" \
  'unnoticed tests/a/mutations/four.patch'
expect 1 '^table: tests/a/BUILD does not name ran$' with check_mutations "${one/run/ran}" "$two" "$three"
expect 1 '^table: tests/a/BUILD does not name ru$' with check_mutations "${one/run/ru}" "$two" "$three"
expect 1 '^table: tests/c/BUILD does not name run$' with check_mutations "${one/tests\/a:/tests\/c:}" "$two" "$three"
expect 1 '^table:4: neither ' with check_mutations "$one" "$two" "$three" 'x.patch'
expect 2 'nothing would be proved' with check_mutations '# none'
echo 'fits no more' >tests/a/mutations/two.patch
expect 1 '^tests/a/mutations/two.patch: does not apply any more$' with check_mutations "$one" "$two" "$three"
expect 1 '^tests/a/mutations/two.patch: does not apply any more$' with check_mutations "$one" "$three" \
  'unnoticed tests/a/mutations/two.patch'

# What is run together.
runs() {
  read_mutations table && group_mutations "$@" || return
  local run
  for run in "${mutation_runs[@]}"; do echo "$run: ${mutation_runs_of[$run]}"; done
}
printf '%s\n' "$one" "$three" "$two" 'unnoticed x/six.patch' >table
expect 0 '^//tests/a:run --seed 1: tests/a/mutations/one.patch tests/a/mutations/two.patch $' runs
expect 0 '^//tests/b:other --of calls --seed 7: tests/b/mutations/three.patch $' runs
expect 0 '^//tests/a:run --seed 1: tests/a/mutations/two.patch $' runs two three
expect 0 '^//tests/b:other --of calls --seed 7: tests/b/mutations/three.patch $' runs two three
expect 2 '^mutations: no row for: (four six|six four)$' runs six two four

# (tools/dev/static.sh holds the table of this tree against the tree.)
expect 0 '^0\|tests/simulation/mutations/' rows "$table"

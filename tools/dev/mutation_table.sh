# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The table of mutations. Sourced by mutations.sh and by the test of these functions; paths are from the current folder.
# A row is "PATCH TARGET ARGUMENTS", or "unnoticed PATCH" for a patch that no program notices. Lines that begin with # and empty
# lines are no rows.

# read_mutations TABLE: sets mutation_patches, mutation_targets and mutation_arguments, an entry a row, and mutations_unnoticed.
# The status is 0 if the table has rows and each row is well formed.
read_mutations() {
  local table=$1 line number=0 bad=0
  local row='^([^ ]+\.patch) +(//[A-Za-z0-9_/]*[A-Za-z0-9_]:[A-Za-z0-9_]+) +(--[a-z].*)$'
  local unnoticed='^unnoticed +([^ ]+\.patch)$'
  mutation_patches=() mutation_targets=() mutation_arguments=() mutations_unnoticed=()
  [[ -r $table ]] || {
    echo "mutations: cannot read $table"
    return 2
  }
  while IFS= read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    if [[ -z $line || $line == '#'* ]]; then
      continue
    elif [[ $line =~ $row ]]; then
      mutation_patches+=("${BASH_REMATCH[1]}")
      mutation_targets+=("${BASH_REMATCH[2]}")
      mutation_arguments+=("${BASH_REMATCH[3]}")
    elif [[ $line =~ $unnoticed ]]; then
      mutations_unnoticed+=("${BASH_REMATCH[1]}")
    else
      echo "$table:$number: neither \"PATCH TARGET ARGUMENTS\" nor \"unnoticed PATCH\": $line"
      bad=1
    fi
  done <"$table"
  [[ ${#mutation_patches[@]} -gt 0 ]] || {
    echo "$table: no rows: nothing would be proved"
    return 2
  }
  return $bad
}

# check_mutations TABLE: reads it, and holds it against the tree. The status is 0 if
# - each row is well formed, no row stands twice, and no patch is both noticed and unnoticed;
# - each patch exists and applies to the tree as it is;
# - the BUILD file of each target names the target;
# - each patch in a folder `mutations` below tests/ has a row.
check_mutations() {
  local table=$1 status=0 i patch target row
  local -A seen=() rows=()
  read_mutations "$table" || status=$?
  [[ $status -lt 2 ]] || return $status

  for i in "${!mutation_patches[@]}"; do
    row="${mutation_patches[i]} ${mutation_targets[i]} ${mutation_arguments[i]}"
    [[ -z ${seen[$row]:-} ]] || {
      echo "$table: ${mutation_patches[i]} has the same row twice"
      status=1
    }
    seen[$row]=1
  done
  for patch in "${mutations_unnoticed[@]}"; do
    [[ " ${mutation_patches[*]} " != *" $patch "* ]] || {
      echo "$table: $patch is noticed and unnoticed"
      status=1
    }
  done
  for patch in "${mutation_patches[@]}" "${mutations_unnoticed[@]}"; do
    [[ -z ${rows[$patch]:-} ]] || continue
    rows[$patch]=1
    if [[ ! -f $patch ]]; then
      echo "$table: there is no $patch"
      status=1
    elif ! git apply --check "$patch"; then
      echo "$patch: does not apply any more"
      status=1
    fi
  done
  for target in "${mutation_targets[@]}"; do
    local build=${target#//}
    build=${build%:*}/BUILD
    if [[ ! -f $build ]] || ! grep -qF "\"${target#*:}\"" "$build"; then
      echo "$table: $build does not name ${target#*:}"
      status=1
    fi
  done
  while IFS= read -r patch; do
    [[ -z ${rows[$patch]:-} ]] || continue
    echo "$table: $patch has no row"
    status=1
  done < <(find tests -path '*/mutations/*.patch' | sort)
  return $status
}

# group_mutations [NAME...]: sets mutation_runs, an entry "TARGET ARGUMENTS" for each that rows have in common, in the order of the
# table, and mutation_runs_of, the patches of each. NAME is that of a patch without folder and suffix; none selects all rows.
group_mutations() {
  local i name run
  local -A missing=()
  for name in "$@"; do missing[$name]=1; done
  mutation_runs=()
  declare -gA mutation_runs_of=()
  for i in "${!mutation_patches[@]}"; do
    name=$(basename "${mutation_patches[i]}" .patch)
    [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
    unset "missing[$name]"
    run="${mutation_targets[i]} ${mutation_arguments[i]}"
    [[ -n ${mutation_runs_of[$run]:-} ]] || mutation_runs+=("$run")
    mutation_runs_of[$run]+="${mutation_patches[i]} "
  done
  [[ ${#missing[@]} -eq 0 ]] || {
    echo "mutations: no row for: ${!missing[*]}"
    return 2
  }
}

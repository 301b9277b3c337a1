#!/usr/bin/env bash
# Puts each bug of this directory into a copy of the tree and runs the tests that its patch names, which must fail. README.md says
# what a patch looks like.
#
#   internal/mutations/check.sh            all; under 8 minutes on an idle processor
#   internal/mutations/check.sh 004 07     those whose names begin so
#   internal/mutations/check.sh -show 004  with what the tests print
set -euo pipefail
cd "$(dirname "$0")/../.."
show='' patience=60
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
tree=$work/tree log=$work/log patches=$work/tree/internal/mutations

fail() { printf 'check.sh: %s\n' "$1" >&2; exit 1; }

export CGO_ENABLED=0 # links faster

# field NAME PATCH: what the patch says under that name.
field() { sed -n "/^diff /q; s/^# $1: //p" "$2"; }

# tests COMMAND [SECONDS]: runs it in the copy; sets outcome (pass, fail, hang; anything else: no test has spoken) and seconds.
tests() {
  local args status=0 start=$EPOCHREALTIME limit=${2:-$patience}
  eval "args=(${1#go test })"
  (cd "$tree" && timeout -k 10 $((limit + 120)) go test -count=1 -vet=off -timeout "${limit}s" "${args[@]}") >"$log" 2>&1 || status=$?
  seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
  if [ "$status" = 0 ]; then
    outcome=pass
    ! grep -q 'no tests to run' "$log" || outcome=empty
  elif grep -qE '\[(build|setup) failed\]' "$log"; then
    outcome=build
  elif grep -q '^panic: test timed out' "$log" || [ "$status" -ge 124 ]; then
    outcome=hang
  elif grep -qE '^( *--- FAIL: |FAIL: |panic: |fatal error: )' "$log"; then # progress's devices print FAIL: and exit
    outcome=fail
  else
    outcome=other
  fi
}

report() { printf '%-6s %6ss  %s\n' "$1" "$seconds" "$2"; }

mkdir "$tree"
git ls-files -z -co --exclude-standard | while IFS= read -rd '' f; do [ ! -f "$f" ] || printf '%s\0' "$f"; done |
  tar --null -T - -cf - | tar -xf - -C "$tree"

if [ "${1-}" = -show ]; then show=1; shift; fi
chosen=()
for p in "$patches"/[0-9]*.patch; do
  [ $# != 0 ] || chosen+=("$p")
  for name in "$@"; do
    case ${p##*/} in "$name"*) chosen+=("$p"); break ;; esac
  done
done
[ ${#chosen[@]} != 0 ] || fail "no patch of that name"

# Without a bug every command passes, or its failing would show nothing.
declare -A sound
for p in "${chosen[@]}"; do
  [ -n "$(field BUG "$p")" ] || fail "${p##*/} does not say what its bug is"
  [ -n "$(field CATCH "$p")" ] || fail "${p##*/} does not name the tests that catch it"
  mapfile -t commands < <(field CATCH "$p")
  for command in "${commands[@]}"; do
    case $command in "go test "*) ;; *) fail "${p##*/} names something else than tests: $command" ;; esac
    [ -z "${sound[$command]-}" ] || continue
    tests "$command"
    [ "$outcome" = pass ] || { tail -50 "$log"; fail "$command: $outcome, without any bug"; }
    sound[$command]=1
    report passes "$command"
  done
done

missed=() caught=0
miss() { report MISSED "$1"; missed+=("$name"); }
for p in "${chosen[@]}"; do
  name=${p##*/}
  seconds=0
  if ! (cd "$tree" && git apply "$p") >"$log" 2>&1; then
    cat "$log"
    miss "$name: does not apply. The code has moved: renew the patch"
    continue
  fi
  hang=$(field HANG "$p") before=${#missed[@]}
  mapfile -t commands < <(field CATCH "$p")
  for command in "${commands[@]}"; do
    tests "$command" "${hang% seconds}"
    [ -z "$show" ] || cat "$log"
    [ "$outcome" != hang ] || [ -z "$hang" ] || outcome=fail
    case $outcome in
    fail) report caught "$name by ${command#go test }" ;;
    pass) miss "$name: passes with the bug: $command" ;;
    hang) tail -50 "$log"; miss "$name: hangs, which counts only where the patch says HANG: $command" ;;
    *) tail -50 "$log"; miss "$name: did not run ($outcome): $command" ;;
    esac
  done
  (cd "$tree" && git apply -R "$p")
  [ ${#missed[@]} != "$before" ] || caught=$((caught + 1))
done
[ ${#missed[@]} = 0 ] || fail "not caught: ${missed[*]}"
printf '%d bugs, all caught, in %ds\n' "$caught" "$SECONDS"

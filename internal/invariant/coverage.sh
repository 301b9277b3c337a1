#!/usr/bin/env bash
# Lists the checks that no test has seen fail, and fails if there are any: a check that cannot fail is no check.
#
#   internal/invariant/coverage.sh       runs the tests with -tags invariants first; some minutes
#   internal/invariant/coverage.sh FILE  after tests that ran with TAGMATCH_INVARIANTS_SEEN=FILE, an absolute path
set -euo pipefail
cd "$(dirname "$0")/../.."

seen=${1-}
if [ -z "$seen" ]; then
  seen=$(mktemp)
  trap 'rm -f "$seen"' EXIT
  TAGMATCH_INVARIANTS_SEEN=$seen go test -tags invariants -count=1 ./...
fi

# checks prints FILE:LINE of all checks: calls of Check and Broken, in package invariant itself without its name.
checks() {
  { git ls-files -z -co --exclude-standard -- '*.go' ':!*_test.go' | xargs -0 grep -nE '\binvariant\.(Check|Broken)\(' --
    grep -nE $'^\t+Broken\\(' internal/invariant/*.go; } | cut -d: -f1,2 | sort -u
}
never=$(comm -23 <(checks) <(sed "s|^$PWD/||" "$seen" | sort -u))
[ -n "$never" ] || exit 0
printf 'coverage.sh: no test sees these checks fail:\n%s\n' "$never" >&2
exit 1

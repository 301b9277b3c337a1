#!/usr/bin/env bash
# Lists the checks that no test of the checks has seen fail, and fails if there are any: a check that cannot fail is no check.
# Takes some seconds: of all tests it runs those in *_invariants_test.go and in this package, with -tags invariants.
set -euo pipefail
cd "$(dirname "$0")/../.."
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT

mapfile -t files < <(git ls-files -co --exclude-standard -- '*_invariants_test.go' 'internal/invariant/*_test.go')
mapfile -t packages < <(printf './%s\n' "${files[@]%/*}" | sort -u)
names=$(grep -hoP '^func \KTest\w+' "${files[@]}" | paste -sd'|')
TAGMATCH_TEST_LEVEL=ci TAGMATCH_INVARIANTS_SEEN=$seen go test -tags invariants -count=1 -run "^($names)\$" "${packages[@]}"

# checks prints FILE:LINE of all checks: calls of Check and Broken, in package invariant itself without its name.
checks() {
  git ls-files -z -co --exclude-standard -- '*.go' ':!*_test.go' | xargs -0 grep -nE '\binvariant\.(Check|Broken)\('
  grep -nE $'^\t+Broken\\(' internal/invariant/*.go
}
all=$(checks | cut -d: -f1,2 | sort -u)
never=$(comm -23 <(printf '%s\n' "$all") <(sed "s|^$PWD/||" "$seen" | sort -u))
if [ -n "$never" ]; then
  printf 'coverage.sh: no test sees these checks fail:\n%s\n' "$never" >&2
  exit 1
fi
printf 'coverage.sh: %d checks, each is seen to fail\n' "$(wc -l <<<"$all")"

package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
)

// Names that begin with ownPrefix belong to the library; those with testPrefix are left to tests.
const (
	ownPrefix  = "TAGMATCH_"
	testPrefix = "TAGMATCH_TEST_"
)

// Unknown reports the unknown TAGMATCH_ variables in environ, entries as os.Environ gives them,
// each with the nearest known name: a misspelled setting would otherwise have no effect, silently.
// Empty variables count as not set; TAGMATCH_TEST_ is left to tests. Values are not checked.
func Unknown(environ []string) []error {
	names := knownVariables()
	var errs []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, ownPrefix) || strings.HasPrefix(name, testPrefix) || slices.Contains(names, name) {
			continue
		}
		errs = append(errs, fmt.Errorf("the environment has %s, which is no variable of this release: %s", name, suggestion(name, names)))
	}
	return errs
}

// knownVariables are the variables of Config, those of the launcher, those of drivers of devices,
// that of package coll, and the one that tests of a build with -tags invariants report to.
func knownVariables() []string {
	names := []string{"TAGMATCH_COLL", "TAGMATCH_INVARIANTS_SEEN"}
	for _, v := range variables() {
		names = append(names, v.env)
	}
	for _, v := range bootstrap.Variables() {
		names = append(names, v.Name)
	}
	for _, d := range drivers {
		names = append(names, d.variables...)
	}
	return names
}

// suggestion names the nearest of names, if any is similar.
func suggestion(name string, names []string) string {
	nearest := slices.MinFunc(names, func(a, b string) int { return difference(name, a) - difference(name, b) })
	if own := len(name) - len(ownPrefix); difference(name, nearest) > max(2, own*3/5) {
		return "unset it; `tagmatch info` lists those that there are"
	}
	return fmt.Sprintf("did you mean %s?", nearest)
}

// difference is the distance of two names, half of it where the first is the beginning of the
// other.
func difference(name, known string) int {
	if strings.HasPrefix(known, name) {
		return (len(known) - len(name)) / 2
	}
	return distance(name, known)
}

// distance is how many bytes to insert, delete or replace to turn a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package testlevel

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// LeftOut are the cases of a suite that cannot hold for what it is played on, by their names, each
// with the reason.
type LeftOut map[string]string

// playing is set in processes of StillFails, which play the cases that others leave out.
const playing = "TAGMATCH_TEST_LEFT_OUT"

// Has reports whether the case of that name is to be left out: the suite does not run it. It is no
// skipped test, since StillFails shows that it cannot hold.
func (l LeftOut) Has(name string) bool {
	_, out := l[name]
	return out && os.Getenv(playing) == ""
}

// SkipTests has the flag -test.skip leave out the cases, which are tests of this package, or
// subtests with the names of those that they are in. TestMain calls it before it runs the tests.
func (l LeftOut) SkipTests() {
	if os.Getenv(playing) != "" || len(l) == 0 {
		return
	}
	if !flag.Parsed() {
		flag.Parse()
	}
	var patterns []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		patterns = append(patterns, only(name))
	}
	f := flag.Lookup("test.skip").Value
	if given := f.String(); given != "" {
		patterns = append(patterns, given)
	}
	if err := f.Set(strings.Join(patterns, "|")); err != nil {
		panic(err)
	}
}

// only is the pattern of a flag -test.run or -test.skip for that test, or subtest.
func only(name string) string {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	return strings.Join(parts, "/")
}

// StillFails plays the cases that are left out of a suite, whose subtests they are, each in a
// process of its own, and fails where one passes five times, in less than a minute each: then it
// need not be left out. (What does not hold may depend on which message comes first.) test is the
// name of the suite's test, or of a subtest; "": the cases are tests.
func (l LeftOut) StillFails(t *testing.T, test string) {
	for name := range l {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			full := strings.ReplaceAll(path.Join(test, name), " ", "_")
			var out []byte
			var err error
			for try := 0; try < 5 && err == nil; try++ {
				cmd := exec.Command(os.Args[0], "-test.run", only(full), "-test.v", "-test.timeout", "1m")
				cmd.Env = append(os.Environ(), playing+"=1")
				out, err = cmd.CombinedOutput()
			}
			if err == nil || !strings.Contains(string(out), fmt.Sprintf("=== RUN   %s\n", full)) {
				t.Errorf("%s is left out, and passes, or there is no such case: %v\n%s", full, err, out)
			}
		})
	}
}

// Patience is for how long a test waits for what should happen: d, or where TAGMATCH_TEST_SLOW is
// set six times as long, since the machine is slow; no long time in one that is to fail, see
// StillFails.
func Patience(d time.Duration) time.Duration {
	if os.Getenv(playing) != "" {
		return min(d, time.Second)
	}
	if os.Getenv("TAGMATCH_TEST_SLOW") != "" {
		return 6 * d
	}
	return d
}

package testlevel

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"
)

// LeftOut are the cases of a suite that cannot hold for what it is played on, by their names, each
// with the reason.
type LeftOut map[string]string

// playing is set in processes of StillFails, which play the cases that others leave out.
const playing = "TAGMATCH_LEFT_OUT"

// Skip skips the case of that name, if it is one that is left out.
func (l LeftOut) Skip(t testing.TB, name string) {
	if why, out := l[name]; out && os.Getenv(playing) == "" {
		t.Skip("left out: " + why)
	}
}

// StillFails plays the cases that are left out of a suite, whose subtests they are, each in a
// process of its own, and fails where one passes: then it need not be left out. test is the name of
// the suite's test, or of a subtest.
func (l LeftOut) StillFails(t *testing.T, test string) {
	for name := range l {
		t.Run(name, func(t *testing.T) {
			full := path.Join(test, strings.ReplaceAll(name, " ", "_"))
			var pattern []string
			for part := range strings.SplitSeq(full, "/") {
				pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
			}
			cmd := exec.Command(os.Args[0], "-test.run", strings.Join(pattern, "/"), "-test.v", "-test.timeout", "1m")
			cmd.Env = append(os.Environ(), playing+"=1")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), fmt.Sprintf("=== RUN   %s\n", full)) {
				t.Errorf("%s is left out, and passes, or there is no such case: %v\n%s", full, err, out)
			}
		})
	}
}

// Patience is for how long a test waits for what should happen: d, unless it is one that is to
// fail, see StillFails.
func Patience(d time.Duration) time.Duration {
	if os.Getenv(playing) != "" {
		return min(d, time.Second)
	}
	return d
}

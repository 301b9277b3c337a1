package verbstest

import (
	"slices"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// Run runs the suite, with the tag-matching part if the devices support it. open must open n
// devices that reach each other and close them when the test ends; a test may have closed one
// already.
func Run(t *testing.T, open func(t *testing.T, n int) []verbs.Device, opts TagOptions) {
	run(t, open, opts, anyDevice)
	if matchesTags(t, open) {
		RunTags(t, open, opts)
	} else {
		run(t, open, opts, withoutTags)
	}
}

// matchesTags asks a device of its own, which it closes again.
func matchesTags(t *testing.T, open Opener) bool {
	t.Helper()
	d := open(t, 1)[0]
	flags := d.Attr().TM.Flags
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return flags&verbs.TMCapRC != 0
}

// RunTags runs the tag-matching part of the suite, for devices in other configurations.
func RunTags(t *testing.T, open func(t *testing.T, n int) []verbs.Device, opts TagOptions) {
	run(t, open, opts, withTags)
}

// run runs the cases for such devices, as subtests by their names.
func run(t *testing.T, open Opener, opts TagOptions, on devices) {
	for _, c := range slices.Concat(rules, scenarios) {
		if c.on != on {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s: %s", c.name, c.says)
				}
			})
			c.test(t, open, opts)
		})
	}
}

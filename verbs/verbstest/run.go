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

// run runs the cases for such devices, as subtests by their names. A test that several rules name
// runs once, under the first of the names that are asked for.
func run(t *testing.T, open Opener, opts TagOptions, on devices) {
	ran := map[string]*testing.T{}
	for _, c := range slices.Concat(rules, scenarios) {
		if c.on != on || opts.LeftOut.Has(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s: %s", c.name, c.says)
				}
			})
			if first := ran[c.testName()]; first != nil {
				t.Logf("proven by %s", first.Name())
				if first.Failed() {
					t.Fail()
				}
				return
			}
			ran[c.testName()] = t
			prove(t, c.test, open, opts)
		})
	}
}

// prove runs a test on the devices that it needs.
func prove(t *testing.T, test any, open Opener, opts TagOptions) {
	t.Helper()
	devices := func(n int) *env {
		e := newEnv(t, open, n)
		e.opts = opts
		return e
	}
	switch test := test.(type) {
	case func(t *testing.T):
		test(t)
	case func(e *env, n *node):
		e := devices(1)
		test(e, e.nodes[0])
	case func(e *env, a, b *node):
		e := devices(2)
		test(e, e.nodes[0], e.nodes[1])
	case func(e *env, a, b, c *node):
		e := devices(3)
		test(e, e.nodes[0], e.nodes[1], e.nodes[2])
	case func(e *env, a, b *node, qa, qb verbs.QP): // connected
		e := devices(2)
		a, b := e.nodes[0], e.nodes[1]
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		test(e, a, b, qa, qb)
	case func(r *tagRig): // short messages, room for 15 entries and 64 operations
		test(newSmallRig(t, open, opts, 15, 64))
	case func(t *testing.T, open Opener, opts TagOptions): // opens them itself
		test(t, open, opts)
	default:
		t.Fatalf("a test of type %T", test)
	}
}

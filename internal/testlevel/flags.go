package testlevel

import (
	"flag"
	"os"
	"runtime/debug"
)

// ManyWait lets 16 parallel tests run at once, unless -parallel says how many: tests that mostly
// wait need few processors. TestMain calls it before it runs the tests.
func ManyWait() { setDefault("test.parallel", "16") }

// FewChecks lets tests of package rapid play a quarter of their cases where suites may be left out,
// unless -rapid.checks says how many. TestMain calls it before it runs the tests.
func FewChecks() {
	if Quick() {
		setDefault("rapid.checks", "25")
	}
}

// MuchGarbage lets the garbage collector run seldom, unless GOGC says how often, or there is a GiB:
// for tests that make much and keep little. The race detector gains nothing by it. TestMain calls
// it before it runs the tests.
func MuchGarbage() {
	if os.Getenv("GOGC") == "" && !Race {
		debug.SetGCPercent(1000)
		debug.SetMemoryLimit(1 << 30)
	}
}

// setDefault is what a flag of the test has that is not given.
func setDefault(name, value string) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup(name); f.Value.String() == f.DefValue {
		if err := f.Value.Set(value); err != nil {
			panic(err)
		}
	}
}

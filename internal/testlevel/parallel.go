package testlevel

import "flag"

// ManyWait lets 16 parallel tests run at once, unless -parallel says how many: tests that mostly
// wait need few processors. TestMain calls it before it runs the tests.
func ManyWait() {
	if !flag.Parsed() {
		flag.Parse()
	}
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("16"); err != nil {
			panic(err)
		}
	}
}

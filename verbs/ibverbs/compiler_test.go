package ibverbs

import (
	"cmp"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// CC is the C compiler of tests.
var CC = cmp.Or(os.Getenv("CC"), "gcc")

var preprocess = sync.OnceValues(func() ([]byte, error) {
	return exec.Command(CC, "-E", "-include", "infiniband/verbs.h", "-x", "c", os.DevNull).CombinedOutput()
})

// NeedHeader skips a test where there is no compiler, or no header of libibverbs. What does not
// compile with them fails.
func NeedHeader(t testing.TB) {
	if out, err := preprocess(); err != nil {
		t.Skipf("needs a C compiler and infiniband/verbs.h (Debian: gcc, libibverbs-dev): %v\n%s", err, out)
	}
}

// built is the directory of what tests compile once; "": there is none. TestMain removes it.
var built string

// BuildDir makes that directory.
var BuildDir = sync.OnceValues(func() (dir string, err error) {
	built, err = os.MkdirTemp("", "ibverbs")
	return built, err
})

// compileLibrary makes a library of a file of testdata.
func compileLibrary(to, source string, flags ...string) ([]byte, error) {
	args := append([]string{"-O1", "-shared", "-fPIC", "-o", to, "testdata/" + source}, flags...)
	return exec.Command(CC, args...).CombinedOutput()
}

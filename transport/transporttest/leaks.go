package transporttest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// checkLeaks fails the test if goroutines or descriptors are left at its end. Call it first, so
// that its cleanup runs last.
func checkLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	before := openFiles()
	t.Cleanup(func() {
		goleak.VerifyNone(t, ignore)
		end := time.Now().Add(testlevel.Patience(2 * time.Second))
		for openFiles() > before && time.Now().Before(end) {
			runtime.Gosched()
		}
		assert.LessOrEqual(t, openFiles(), before, "descriptors are left open")
	})
}

// openFiles counts this process's descriptors; 0 where there is no /proc.
func openFiles() int {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0
	}
	defer func() { _ = d.Close() }()
	names, _ := d.Readdirnames(-1)
	return len(names)
}

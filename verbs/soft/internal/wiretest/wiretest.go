// Package wiretest is what the tests of wires share.
package wiretest

import (
	"runtime"
	"testing"
	"time"
)

// Within fails the test if f takes too long.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		buf := make([]byte, 1<<16)
		t.Fatalf("%s: stuck\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

//go:build !linux

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

func processAttr() *syscall.SysProcAttr { return nil }

// awaitExit leaves the wait to Cmd.Wait.
func awaitExit(int) bool { return false }

// killHolders is implemented on Linux.
func killHolders(map[string]bool) {}

// unread is not known: what a rank leaves in a pipe is read within stream.patience.
func unread(*os.File) int { return 0 }

// exitQueue is implemented on Linux.
type exitQueue struct{}

func newExitQueue() *exitQueue            { return nil }
func (*exitQueue) prepare(*exec.Cmd) *int { return nil }
func (*exitQueue) add(*rank, int)         {}
func (*exitQueue) run(func(*rank))        {}

// signalGroup signals the rank's first process only.
func signalGroup(p *os.Process, sig syscall.Signal) {
	_ = p.Signal(sig) // one that has ended is fine
}

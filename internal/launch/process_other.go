//go:build !linux

package launch

import (
	"os"
	"os/exec"
	"syscall"
)

func processAttr() *syscall.SysProcAttr { return nil }

// awaitExit is left to Cmd.Wait.
func awaitExit(int) bool { return false }

// exitQueue needs Linux.
type exitQueue struct{}

func newExitQueue() *exitQueue            { return nil }
func (*exitQueue) prepare(*exec.Cmd) *int { return nil }
func (*exitQueue) add(*rank, int)         {}
func (*exitQueue) run(func(*rank))        {}

// signalGroup reaches the rank's first process only.
func signalGroup(p *os.Process, sig syscall.Signal) {
	if sig == syscall.SIGKILL || p.Signal(sig) != nil {
		p.Kill()
	}
}

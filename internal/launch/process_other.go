//go:build !linux

package launch

import (
	"os"
	"syscall"
)

func processAttr() *syscall.SysProcAttr { return nil }

// awaitExit is left to Cmd.Wait.
func awaitExit(int) {}

// signalGroup reaches the rank's first process only.
func signalGroup(p *os.Process, sig syscall.Signal) {
	if sig == syscall.SIGKILL || p.Signal(sig) != nil {
		p.Kill()
	}
}

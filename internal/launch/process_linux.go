package launch

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// processAttr makes a rank a process group of its own that does not outlive the launcher.
func processAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when pid has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// signalGroup sends sig to all of a rank's processes.
func signalGroup(p *os.Process, sig syscall.Signal) {
	_ = unix.Kill(-p.Pid, sig) // nobody left to be told is well
}

package refuse

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const childVar = "TAGMATCH_REFUSE_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	if err := refused(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// TestCalls runs in a child process: a filter stays for ever.
func TestCalls(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// refused tries the calls in threads from before the filter and in new ones.
func refused() error {
	const threads = 8
	ready, ask := make(chan struct{}), make(chan struct{})
	answers := make(chan error)
	look := func() {
		runtime.LockOSThread()
		ready <- struct{}{}
		<-ask
		answers <- outcome()
	}
	for range threads / 2 {
		go look()
		<-ready
	}
	if err := Calls(unix.EPERM, unix.SYS_PIDFD_OPEN, unix.SYS_MEMFD_CREATE); err != nil {
		return err
	}
	if err := Calls(unix.ENOSYS, unix.SYS_MEMFD_CREATE); err != nil {
		return err
	}
	for range threads / 2 {
		go look()
		<-ready
	}
	close(ask)
	var errs []error
	for range threads {
		errs = append(errs, <-answers)
	}
	return errors.Join(errs...)
}

func outcome() error {
	if _, err := unix.PidfdOpen(os.Getpid(), 0); err != unix.EPERM {
		return fmt.Errorf("pidfd_open: %w", err)
	}
	if _, err := unix.MemfdCreate("refused", 0); err != unix.ENOSYS {
		return fmt.Errorf("memfd_create: %w", err)
	}
	fd, err := unix.Eventfd(0, 0)
	if err != nil {
		return fmt.Errorf("eventfd, which nobody refused: %w", err)
	}
	return unix.Close(fd)
}

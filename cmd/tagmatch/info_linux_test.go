package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/refuse"
)

const envRefused = "TAGMATCH_TEST_REFUSED"

func init() {
	if os.Getenv(envRefused) == "" {
		return
	}
	if err := refuse.Calls(unix.EPERM, unix.SYS_PIDFD_OPEN); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(execute([]string{"info"}, nil, os.Stdout, os.Stderr))
}

// TestInfoWithoutSharedMemory: info shows the wires of device auto, and why one is missing.
func TestInfoWithoutSharedMemory(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRefused+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `wires, best first +tcp *\n`, string(out))
	require.Regexp(t, `(?s)without shared memory +.*pidfd_open:\s+operation\s+not\s+permitted.*device shm`, string(out))
	require.Regexp(t, `(?s)device shm\n +not available +.*pidfd_open:\s+operation\s+not\s+permitted.*device tcp`, string(out))
	_, here, _ := command("info")
	require.Regexp(t, `wires, best first +shm, tcp *\n`, here)
	require.Regexp(t, `(?s)device shm\n.*threshold +65536 bytes\n +\(from here on each end copies one half.*device tcp\n.*threshold +16384 bytes\n +\(from here on`, here)
}

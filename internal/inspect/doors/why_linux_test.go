package doors

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhy: what is said of a rank without an answer is about its process, where that is not well.
func TestWhy(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	gone, here := cmd.Process.Pid, os.Getpid()
	for _, c := range []struct {
		err  error
		pid  int
		want string
	}{
		{context.DeadlineExceeded, here, Busy},
		{context.DeadlineExceeded, gone, Gone},
		{syscall.EAGAIN, here, Busy},
		{syscall.ECONNRESET, gone, Gone},
		{syscall.ECONNREFUSED, gone, Gone},
		{syscall.ECONNREFUSED, here, "it has closed its World"},
		{errors.New("its answer is no state"), here, "its answer is no state"},
	} {
		require.Equal(t, c.want, why(c.err, c.pid), "%v", c.err)
	}
}

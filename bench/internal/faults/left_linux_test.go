package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeft: a socket and a process that are there are found, and not once they are gone.
func TestLeft(t *testing.T) {
	name := fmt.Sprintf("@tagmatch-left-%d", os.Getpid())
	ln, err := net.Listen("unix", name)
	require.NoError(t, err)
	names, err := abstractSockets()
	require.NoError(t, err)
	require.Contains(t, names, name)
	child := exec.Command("sleep", "600")
	require.NoError(t, child.Start())

	list, err := left([]string{name, "@of-nobody"})
	require.NoError(t, err)
	require.Len(t, list, 2, list)
	require.Equal(t, "socket "+name, list[0])
	require.Contains(t, list[1], fmt.Sprintf("process %d,", child.Process.Pid))

	require.NoError(t, ln.Close())
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	list, err = left([]string{name})
	require.NoError(t, err)
	require.Empty(t, list)
}

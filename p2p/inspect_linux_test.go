package p2p_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// mine are the doors of this process.
func mine(t *testing.T) []doors.Name {
	names, err := doors.Find()
	require.NoError(t, err)
	return slices.DeleteFunc(names, func(n doors.Name) bool { return n.PID != os.Getpid() })
}

// TestDoors: a World has a door for as long as it is there, and Worlds that are all of one process
// have none.
func TestDoors(t *testing.T) {
	for range 2 { // the second has another job
		w, err := p2p.Init(background, p2p.Config{})
		require.NoError(t, err)
		require.Len(t, mine(t), 1)
		r := w.Comm().Irecv(0, 7, make([]byte, 10))
		s := doors.States(background, mine(t))[0]
		require.Empty(t, s.Silent)
		s.Receives[0].Age = 0
		require.Equal(t, []inspect.Receive{{Key: inspect.Key{Comm: inspect.CommWorld, Tag: 7}, Bytes: 10, N: 1, Kind: "receive", Where: "software"}}, s.Receives)
		require.Equal(t, "running", s.Phase)
		r.Cancel()
		r.Free()
		require.NoError(t, w.Shutdown(background))
		require.Empty(t, mine(t))
		require.NoError(t, w.Close())
	}
	w, err := p2p.Init(background, p2p.Config{})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Empty(t, mine(t))
	t.Setenv("TAGMATCH_INSPECT", "off")
	w, err = p2p.Init(background, p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	require.Empty(t, mine(t))
	t.Setenv("TAGMATCH_INSPECT", "on")
	p2ptest.Run(t, 2, func(*p2p.World) { require.Empty(t, mine(t)) })
}

// TestSecretIsReadOnce: the file of the secret may be a pipe, such as a shell's <(command).
func TestSecretIsReadOnce(t *testing.T) {
	r, secret, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = r.Close() }()
	_, err = secret.WriteString(strings.Repeat("5a", 32))
	require.NoError(t, err)
	require.NoError(t, secret.Close())
	t.Setenv("TAGMATCH_SECRET_FILE", fmt.Sprintf("/dev/fd/%d", r.Fd()))
	w, err := p2p.Init(background, p2p.Config{})
	require.NoError(t, err)
	require.NoError(t, w.Close())
}

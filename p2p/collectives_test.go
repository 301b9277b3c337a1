package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/inspect"
)

// TestMeetings: collective calls are counted by Comm, until it is closed.
func TestMeetings(t *testing.T) {
	w, err := Init(t.Context(), Config{Bootstrap: bootstrap.NewLocal(1)[0]})
	require.NoError(t, err)
	defer w.Close()
	meetings := func() []inspect.Meeting {
		list, whole := w.meetingsNow()
		require.True(t, whole)
		return list
	}
	require.Empty(t, meetings())
	c, err := w.Comm().Dup(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.Comm().Barrier(t.Context()))
	require.Equal(t, []inspect.Meeting{{Name: "Barrier", Comm: "World", Number: 2, Size: 1}}, meetings())
	s, err := c.Split(t.Context(), 1, 0)
	require.NoError(t, err)
	s.Collectives(func() Collective { return Collective{} })
	require.Len(t, meetings(), 2, "of s there is nothing to say")
	s.Collectives(func() Collective { return Collective{"Sum", 7, true} })
	require.Equal(t, []inspect.Meeting{
		{Name: "Sum", Comm: "Comm 2", Number: 7, Waiting: true, Size: 1},
		{Name: "Barrier", Comm: "World", Number: 2, Size: 1},
		{Name: "Split", Comm: "Comm 1", Number: 1, Size: 1},
	}, meetings())
	require.NoError(t, s.Close())
	s.Collectives(func() Collective { return Collective{"Sum", 8, true} })
	require.Len(t, meetings(), 2)
	require.NoError(t, c.Close())
	require.NoError(t, w.Shutdown(t.Context()))
	require.Equal(t, inspect.Meeting{Name: "Shutdown", Number: 1, Waiting: true, Size: 1}, meetings()[0])
}

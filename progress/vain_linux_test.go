package progress

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVainCallsLetSocketsBeSeen: in a loop of calls that find nothing, with GOMAXPROCS 1, a
// goroutine that waits for a file runs soon after that is ready, and not when the Go scheduler
// looks by itself.
func TestVainCallsLetSocketsBeSeen(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := newCluster(t, 2, Config{Manual: true}, fakeOpts{})
	r, w, err := os.Pipe()
	require.NoError(t, err)
	var got atomic.Int32
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1); ; got.Add(1) {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	req := c.e[0].Irecv(1, 7, exact, nil)
	calls := 0
	for round := range int32(30) {
		runtime.Gosched() // it waits for the pipe
		_, err = w.Write([]byte{1})
		require.NoError(t, err)
		for ; got.Load() == round; calls++ {
			_, done, err := req.Test()
			require.NoError(t, err)
			require.False(t, done)
		}
	}
	require.Less(t, calls, 60_000) // by itself the scheduler would look after some 4,000 of a round
	req.Cancel()
	require.NoError(t, w.Close())
	<-ended
	require.NoError(t, r.Close())
}

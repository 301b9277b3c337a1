package wait

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBell: who steps aside lets those run who wait for files that are ready.
func TestBell(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := newFake(t, Config{Manual: true})
	require.True(t, f.aside.ready(false))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	got := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1); ; got <- struct{}{} {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	slow := 0
	for range 100 {
		runtime.Gosched() // it waits for the pipe
		_, err := w.Write([]byte{1})
		require.NoError(t, err)
		for n := 0; len(got) == 0; n++ {
			if n == 20 {
				slow++ // the scheduler has looked itself, and its thread has lost the processor then
			}
			f.aside.bell.step()
		}
		<-got
	}
	require.Less(t, slow, 50)
	require.NoError(t, w.Close())
	<-ended
	require.NoError(t, r.Close())
	f.locked(f.Stop)
	require.ErrorIs(t, f.aside.bell.file.Close(), os.ErrClosed)
	require.False(t, f.aside.ready(true))
}

package progress

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// An operation that ends between two looks of Wait or Test at it has ended, not been consumed.
func TestEndsWhileLooking(t *testing.T) {
	op, rounds := &Op{}, uint64(5_000)
	switch {
	case runtime.GOMAXPROCS(0) == 1:
		rounds = 50 // the two sides only meet where the scheduler interrupts one, every 10 ms
	case testlevel.Quick():
		rounds = 500
	}
	for gen := range rounds {
		r := Request{op: op, life: gen}
		ended := make(chan struct{})
		go func() {
			op.SetEnded()
			close(ended)
		}()
		done, err := false, error(nil)
		for !done {
			_, done, err = r.Test()
		}
		require.NoError(t, err, "generation %d", gen)
		<-ended
	}
}

package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An operation that ends between two looks of Wait or Test at it has ended, not been consumed.
func TestEndsWhileLooking(t *testing.T) {
	op := &Op{}
	for gen := range uint64(5_000) {
		r := Request{op, gen}
		ended := make(chan struct{})
		go func() {
			op.life.Store(pending(gen) | 1)
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

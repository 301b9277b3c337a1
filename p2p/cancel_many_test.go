package p2p_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// TestCancelManyLarge has goroutines of both ranks receive large messages, many at once, under
// contexts that end at any moment of a transfer. Each message comes whole to the next Recv, and
// what was abandoned costs nobody the connection.
func TestCancelManyLarge(t *testing.T) {
	const pairs = 6
	seed := rand.Uint64()
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		messages := rounds(100)
		together(t, 4*pairs, func(i int) {
			w, tag, sends := ws[i%2], p2p.Tag(i/4), i/2%2 == 0
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			defer closeIfFailed(t, ws...)
			buf := fresh(600_000)
			for k := range messages {
				size := 33_000 + (k*7919+int(tag)*104_729)%500_000
				if sends {
					require.NoError(t, w.Comm().Send(background, 1-w.Rank(), tag, pattern(size, k)))
					continue
				}
				for most := 800; ; most += most / 4 { // with one processor 24 goroutines take their time
					ctx, cancel := context.WithTimeout(background, time.Duration(rng.IntN(most))*time.Microsecond)
					st, err := w.Comm().Recv(ctx, 1-w.Rank(), tag, buf)
					cancel()
					if err == nil {
						require.EqualValues(t, size, st.Len, "seed %d", seed)
						requireBytes(t, pattern(size, k), buf[:size])
						break
					}
					require.True(t, errors.Is(err, context.DeadlineExceeded), "seed %d: %v", seed, err)
					clear(buf[:64]) // what is written to it afterwards would be seen
				}
			}
		})
	})
}

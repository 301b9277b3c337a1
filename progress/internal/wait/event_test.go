package wait

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each generation of an Event has one outcome, which is taken once, also where it was born ended.
func TestGenerations(t *testing.T) {
	for name, born := range map[string]bool{"ends": false, "born ended": true} {
		t.Run(name, func(t *testing.T) {
			var ev Event
			if born {
				ev.SetBorn()
			}
			for gen := range uint64(10) {
				require.Equal(t, gen, ev.Gen())
				if !born {
					require.True(t, ev.Pending(gen))
					require.False(t, ev.Take(gen))
					ev.SetEnded()
				}
				require.True(t, ev.Ended())
				require.True(t, ev.Has(gen))
				require.True(t, ev.Active(gen))
				require.False(t, ev.Pending(gen) || ev.UnderWay(gen))
				require.False(t, ev.Take(gen+1) || ev.Has(gen+1))
				if gen%2 == 0 {
					require.True(t, ev.Take(gen))
				} else {
					require.True(t, ev.Give(gen))
					require.False(t, ev.Has(gen) || ev.Active(gen) || ev.Take(gen))
					ev.Retire()
				}
				require.False(t, ev.Take(gen) || ev.Give(gen) || ev.Has(gen) || ev.Active(gen))
			}
		})
	}
}

// The last generation is followed by the first.
func TestGenerationsBeginAnew(t *testing.T) {
	var ev Event
	const last = 1<<GenBits - 1
	ev.life.Store(last<<eventGen | eventEnded)
	require.True(t, ev.Take(last))
	require.True(t, ev.Pending(0))
}

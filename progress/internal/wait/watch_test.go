package wait

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counter is a Watcher that counts its calls.
type counter struct {
	Watch
	calls int
	waits bool
}

func (c *counter) Over()       { c.calls++ }
func (c *counter) Waits() bool { return c.waits }

// Watches are linked and unlinked at random, and a naive model says which of them are told.
func TestWatches(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var events [3]Event
	var watches [12]counter
	on, want := map[int]int{}, make([]int, len(watches)) // event by watch, and calls
	for w := range watches {
		watches[w].waits = w%3 == 0
	}
	over := func(event int) {
		for w, ev := range on {
			if ev == event {
				delete(on, w)
				want[w]++
			}
		}
	}
	f.locked(func() {
		for range roundsOr(20000) {
			w, event := rng.IntN(len(watches)), rng.IntN(len(events))
			ev := &events[event]
			_, linked := on[w]
			require.Equal(t, linked, watches[w].Linked())
			switch n := rng.IntN(16); {
			case n == 0:
				f.End(ev)
				over(event)
				require.True(t, ev.Take(ev.Gen()))
			case n == 1:
				require.True(t, ev.Give(ev.Gen()))
				over(event)
				f.End(ev) // tells nobody again
				ev.Retire()
			case linked:
				watches[w].Unlink()
				watches[w].Unlink()
				delete(on, w)
			default:
				watches[w].Link(ev, &watches[w])
				on[w] = event
			}
			awaited := [len(events)]bool{}
			for i := range watches {
				require.Equal(t, want[i], watches[i].calls)
				if event, linked := on[i]; linked && watches[i].waits {
					awaited[event] = true
				}
			}
			for i := range events {
				require.Equal(t, awaited[i], events[i].Awaited())
			}
		}
	})
}

// An event that was given away is over for those who have its generation; its end is told to whom
// it was given, and to channels that were asked for before.
func TestGiven(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	f.locked(func() {
		for gen := range uint64(3) {
			var ev Event
			for range gen {
				ev.SetEnded()
				ev.Retire()
			}
			require.Equal(t, gen, ev.Gen())
			require.True(t, ev.Pending(gen) && ev.Active(gen) && ev.UnderWay(gen))
			done := f.Done(&ev, gen)
			require.False(t, ev.Give(gen+1))
			require.True(t, ev.Give(gen))
			require.False(t, ev.Give(gen))
			require.False(t, ev.Pending(gen) || ev.Active(gen) || ev.Ended() || ev.Has(gen))
			require.True(t, ev.UnderWay(gen))
			require.Equal(t, Closed, f.Done(&ev, gen))
			require.NoError(t, f.Await(bg, &ev, nil, gen), "there is nothing to wait for")
			select {
			case <-done:
				require.Fail(t, "it has not ended")
			default:
			}
			var owner counter
			owner.Link(&ev, &owner)
			f.End(&ev)
			<-done
			require.Equal(t, 1, owner.calls)
			require.False(t, ev.Active(gen) || ev.UnderWay(gen) || ev.Has(gen))
			require.True(t, ev.Ended())
			require.False(t, ev.Take(gen), "the outcome is the owner's")
			require.Equal(t, gen, ev.Gen())
			ev.Retire()
			require.True(t, ev.Pending(gen+1))
			ev.SetEnded()
			require.True(t, ev.Give(gen+1), "after its end")
			require.False(t, ev.Take(gen+1) || ev.Give(gen+1))
		}
	})
}

// Those who wait, wherever they are, wake when the event is given away, and nobody takes it.
func TestGivenWakesWaiters(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		f := newFake(t, cfg)
		for i := range roundsOr(500) {
			var o op
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					f.Lock.Lock()
					defer f.Unlock()
					if err := f.Await(bg, &o.Event, &o, 0); err != nil || o.Active(0) {
						t.Error(err, o.Active(0))
					}
				})
			}
			if i%2 == 0 {
				time.Sleep(time.Duration(i%64) * time.Microsecond)
			}
			f.locked(func() { require.True(t, o.Give(0)) })
			wg.Wait()
			f.locked(func() { require.Nil(t, o.watches) })
			f.arrive(&o)
			f.poll()
			require.True(t, o.Ended())
		}
	})
}

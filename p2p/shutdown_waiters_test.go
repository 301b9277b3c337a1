package p2p_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// The error of a Shutdown that a lost rank keeps from ending in order is that of a lost rank.
func TestShutdownOfSurvivors(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		barrier(t, w.Comm())
		if w.Rank() == 2 {
			assert.NoError(t, w.Close())
			return
		}
		ctx, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second))
		defer cancel()
		err := w.Shutdown(ctx)
		assert.ErrorIs(t, err, p2p.ErrPeerLost)
		var lost *p2p.PeerError
		if assert.ErrorAs(t, err, &lost) {
			assert.Subset(t, w.Failed(), lost.Ranks)
			assert.Contains(t, lost.Ranks, 2)
			assert.ErrorContains(t, err, "lost: it has closed its World while this rank still counted on it")
			assert.NotContains(t, err.Error(), "fence")
		}
	})
}

// The error of Shutdown names a loss that only the launcher's store knows of: Failed lists it.
func TestShutdownNamesStranger(t *testing.T) {
	var joined sync.WaitGroup
	joined.Add(3)
	p2ptest.Run(t, 3, func(w *p2p.World) {
		joined.Done()
		joined.Wait()
		if w.Rank() == 2 {
			assert.NoError(t, w.Close())
			return
		}
		err := w.Shutdown(background)
		var lost *p2p.PeerError
		if assert.ErrorAs(t, err, &lost) {
			assert.Contains(t, lost.Ranks, 2)
			assert.Subset(t, w.Failed(), lost.Ranks)
			assert.EqualError(t, lost.Cause, "it has closed its World while this rank still counted on it")
		}
	})
}

// The error of a Shutdown whose context ends names the ranks that were lost before, too.
func TestShutdownInVainNamesTheLost(t *testing.T) {
	over := make(chan struct{})
	var joined sync.WaitGroup
	joined.Add(3)
	p2ptest.Run(t, 3, func(w *p2p.World) {
		joined.Done()
		joined.Wait()
		switch w.Rank() {
		case 1:
			<-over
		case 0:
			_, err := w.Comm().Recv(background, 2, 1, nil)
			assert.ErrorIs(t, err, p2p.ErrPeerLost)
			w.Isend(1, 1, make([]byte, 1<<20))
			ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
			defer cancel()
			err = w.Shutdown(ctx)
			close(over)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var lost *p2p.PeerError
			if assert.ErrorAs(t, err, &lost) {
				assert.Equal(t, []int{2}, lost.Ranks)
			}
		}
		assert.NoError(t, w.Close())
	})
}

// What a rank has sent to a survivor is delivered when its Shutdown fails because of a loss, and
// can be received after that.
func TestShutdownDeliversToSurvivors(t *testing.T) {
	const messages = 100
	over := make(chan struct{})
	p2ptest.Run(t, 3, func(w *p2p.World) {
		defer w.Close()
		barrier(t, w.Comm())
		switch w.Rank() {
		case 0:
			defer close(over)
			for i := range messages {
				w.Comm().Isend(1, p2p.Tag(i), make([]byte, i)).Free()
			}
			large := w.Comm().Isend(1, messages, make([]byte, 100<<10))
			err := w.Shutdown(background)
			assert.ErrorIs(t, err, p2p.ErrPeerLost)
			assert.ErrorContains(t, err, "p2p: shutdown: not all ranks have come: ")
			assert.NoError(t, second(large.Wait(background)))
		case 1:
			assert.NoError(t, second(w.Comm().Recv(background, 0, messages, make([]byte, 100<<10))))
			<-over
			for i := range messages {
				st, err := w.Comm().Recv(background, 0, p2p.Tag(i), make([]byte, messages))
				assert.NoError(t, err)
				assert.EqualValues(t, i, st.Len)
			}
		}
	})
}

// A limit that is wrong is wrong of any source.
func TestRecvAllocRefusesLimits(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		for _, src := range []int{0, p2p.AnySource, p2p.ProcNull} {
			_, _, err := w.Comm().RecvAlloc(background, src, 1, -1)
			assert.ErrorIs(t, err, p2p.ErrInvalid)
		}
		_, _, err := w.RecvAlloc(background, 1, p2p.MaskExact, -1)
		assert.ErrorIs(t, err, p2p.ErrInvalid)
	})
}

// A job ends in order although goroutines wait in calls that it ends, in all ranks or in one.
func TestShutdownBesideWaiters(t *testing.T) {
	for name, wait := range map[string]func(c *p2p.Comm, w *p2p.World) error{
		"Recv": func(c *p2p.Comm, _ *p2p.World) error { return second(c.Recv(background, p2p.AnySource, 1, nil)) },
		"Mprobe": func(c *p2p.Comm, _ *p2p.World) error {
			_, err := c.Mprobe(background, p2p.AnySource, 1)
			return err
		},
		"Wait": func(c *p2p.Comm, _ *p2p.World) error { return second(c.Irecv(0, 1, nil).Wait(background)) },
		"WaitAny": func(c *p2p.Comm, _ *p2p.World) error {
			_, _, err := p2p.WaitAny(background, []p2p.Request{c.Irecv(0, 1, nil), c.Irecv(1, 1, nil)})
			return err
		},
		"Queue.Wait": func(c *p2p.Comm, w *p2p.World) error {
			_, err := w.NewQueue(1).Wait(background, make([]p2p.Completion, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
				var waiters sync.WaitGroup
				defer waiters.Wait()
				for range 1 + w.Rank() {
					waiters.Go(func() { assert.Error(t, wait(w.Comm(), w)) })
				}
				time.Sleep(5 * time.Millisecond) // mostly they sleep by now
				ctx, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second))
				defer cancel()
				assert.NoError(t, w.Shutdown(ctx))
			})
		})
	}
}

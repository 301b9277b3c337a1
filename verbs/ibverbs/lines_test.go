package ibverbs

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// busyChannel is a channel of a device for which something has come that nobody polls.
type busyChannel struct{ waits int }

func (c *busyChannel) Wait() error {
	if c.waits++; c.waits > 100 {
		return errors.New("it does not end")
	}
	return nil
}
func (*busyChannel) Wake()        {}
func (*busyChannel) Close() error { return nil }

// silentQueue has no completions.
type silentQueue struct{ verbs.CQ }

func (silentQueue) Arm(bool) error                        { return nil }
func (silentQueue) Drain(verbs.Handler, int) (int, error) { return 0, nil }
func (silentQueue) Destroy() error                        { return nil }

type closedDevice struct{ verbs.LineDevice }

func (closedDevice) Close() error { return errors.New("closed") }

// TestLinesWaitOnce: while the owner computes, the goroutine of its lines takes no processor time.
func TestLinesWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &busyChannel{}
		l := &lines{dev: closedDevice{}, ch: c, cq: silentQueue{}, d: &device{}, again: make(chan struct{}, 1), ended: make(chan struct{})}
		l.ready.Store(true)
		go l.wait()
		for n := 1; n < 4; n++ {
			require.NoError(t, l.poll())
			synctest.Wait()
			require.Equal(t, n, c.waits)
			require.True(t, l.ready.Load())
		}
		require.EqualError(t, l.close(), "closed")
	})
}

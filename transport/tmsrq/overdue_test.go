package tmsrq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/tmsrq/tmsrqtest"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// owed is a receiver, whose device owes it the end of one of three receives for ever, as their
// sender has died in the middle of the messages.
type owed struct {
	*tmsrq.Transport
	transporttest.Recorder
}

func (o *owed) count(kind string) (n int) {
	for _, e := range o.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (o *owed) poll(t *testing.T) {
	_, err := o.Poll()
	require.NoError(t, err)
}

func newOwed(t *testing.T, grace time.Duration) *owed {
	const size, receives = 1 << 20, 3
	f := soft.NewFabric()
	var devs [2]*soft.Device
	var ends [2]*owed
	for i := range devs {
		dev, err := soft.Open(softtest.WithHabits(soft.Config{Fabric: f, Rank: i}, softtest.Habits{Tags: true}))
		require.NoError(t, err)
		o := &owed{}
		o.Transport, err = tmsrq.New(tmsrq.Config{Device: dev, Rank: i, Size: 2}, &o.Recorder)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, o.Close())
			require.NoError(t, dev.Close())
		})
		devs[i], ends[i] = dev, o
	}
	sender, o := ends[0], ends[1]
	require.NoError(t, sender.Connect(1, o.Address()))
	require.NoError(t, o.Connect(0, sender.Address()))
	tmsrqtest.Grace(o.Transport, grace)
	region, err := sender.Register(1, make([]byte, size))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, region.Dereg()) })
	for i := range uint64(receives) {
		tag := 1<<63 | i // of rank 0
		require.NoError(t, o.TagList().Add(i, tag, ^uint64(0), make([]byte, size), 0))
		for err := transport.ErrAgain; err == transport.ErrAgain; sender.poll(t) {
			o.poll(t)
			err = sender.SendRndv(1, &transport.RndvHdr{Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: size})
			require.True(t, err == nil || err == transport.ErrAgain, err)
		}
	}
	for o.count("matched") < receives {
		o.poll(t)
	}
	softtest.Kill(f, devs[0])
	return o
}

// TestOwed: a receive that the device has matched, and does not complete as its sender is lost,
// does not end before the grace is over, and the loss is not reported.
func TestOwed(t *testing.T) {
	o := newOwed(t, time.Hour)
	for range 2000 {
		o.poll(t)
	}
	require.Equal(t, 2, o.count("delivered"))
	require.Zero(t, o.count("lost"))
}

// TestOwedEnds: then it ends, also for who sleeps.
func TestOwedEnds(t *testing.T) {
	for _, grace := range []time.Duration{0, 30 * time.Millisecond} {
		o := newOwed(t, grace)
		start, patience := time.Now(), testlevel.Patience(10*time.Second)
		late := time.AfterFunc(patience, o.Wake)
		for o.count("lost") == 0 {
			require.Less(t, time.Since(start), patience, "nothing has woken it")
			require.NoError(t, o.Arm())
			if n, err := o.Poll(); n == 0 {
				require.NoError(t, err)
				require.NoError(t, o.Wait())
			}
		}
		require.True(t, late.Stop(), "nothing has woken it")
		require.GreaterOrEqual(t, time.Since(start), grace)
		require.Equal(t, 3, o.count("delivered"))
		for _, e := range o.Events {
			require.True(t, e.Kind != "delivered" || e.Err != nil, "%+v", e)
		}
		require.Equal(t, "lost", o.Events[len(o.Events)-1].Kind)
		require.Equal(t, o.TagList().Capacity(), o.TagList().Free())
	}
}

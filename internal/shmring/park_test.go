package shmring

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// parkRounds is the number of messages that are sent just as the reader parks.
func parkRounds() int {
	switch {
	case testlevel.Quick(), !testlevel.CI() && testlevel.Race: // a hundred times slower where both sides share a processor
		return 20_000
	case !testlevel.CI() || testlevel.Race:
		return 100_000
	}
	return 1_000_000
}

// sleeper replaces the eventfd. Sleeping is polling only the flag, which keeps rounds short, so
// that the two sides meet while the reader parks.
type sleeper struct{ flag atomic.Bool }

func (s *sleeper) wake() { s.flag.Store(true) }

// sleep returns false if it was not woken for long.
func (s *sleeper) sleep() bool {
	var deadline time.Time
	for n := 1; !s.flag.Load(); n++ {
		if n%4096 != 0 {
			continue
		}
		runtime.Gosched()
		if deadline.IsZero() {
			deadline = time.Now().Add(testlevel.Patience(10 * time.Second))
		} else if time.Now().After(deadline) {
			return false
		}
	}
	s.flag.Store(false)
	return true
}

func spinUntil(f func() bool) {
	for n := 1; !f(); n++ {
		if n%4096 == 0 {
			runtime.Gosched()
		}
	}
}

// delay is a short wait that varies from round to round, so that the two sides meet at every
// distance.
func delay(x uint64) {
	for range x % 61 {
		spinSink.Add(0)
	}
}

var spinSink atomic.Int64

// TestNoLostWakeup: the reader parks after every message, and the writer publishes just then. The
// reader's last check must find that message, or the message must wake it.
func TestNoLostWakeup(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	in, err := NewInbox(alignedBytes(InboxBytes))
	if err != nil {
		t.Fatal(err)
	}
	rounds := parkRounds()
	var arming atomic.Int64 // round in which the reader is about to park
	var wake sleeper
	go func() {
		for i := range rounds {
			spinUntil(func() bool { return arming.Load() > int64(i) })
			delay(uint64(i) * 7)
			if i%3 > 0 {
				p.Push(uint32(i)&metaMask, uint64(i), nil, nil, nil)
			} else if p.Hold(uint32(i)&metaMask, uint64(i), nil, nil) {
				p.Publish()
			}
			if p.NeedsSignal() && in.Raise(77, i%2 == 0) {
				wake.wake()
			}
		}
	}()
	var pkt Packet
	slept := 0
	for i := range rounds {
		c.SetHot(true)
		arming.Store(int64(i) + 1)
		delay(uint64(i) * 13 % 61)
		c.SetHot(false)
		// A wake-up for the round before clears the parked state too: park again each time.
		for in.Park(); c.Empty() && !in.Pending(); in.Park() { // the last check
			slept++
			if !wake.sleep() {
				t.Fatalf("round %d: a message lies in the ring and the reader sleeps", i)
			}
		}
		in.Unpark()
		in.Take(func(slot uint32) {
			if slot != 77 {
				t.Errorf("slot %d raised", slot)
			}
		})
		spinUntil(func() bool { return !c.Empty() }) // raised, hence published
		if ok, err := c.Peek(&pkt); !ok || err != nil || pkt.ID != uint64(i) {
			t.Fatalf("round %d: %v %v %+v", i, ok, err, pkt)
		}
		c.Advance()
		c.Release()
	}
	t.Logf("slept in %d of %d rounds", slept, rounds)
}

// TestNoLostRoom is the same for a writer that waits for room.
func TestNoLostRoom(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	rounds := parkRounds()
	var wake sleeper
	done := make(chan struct{})
	go func() { // the reader never sleeps here
		defer close(done)
		var pkt Packet
		for i := range rounds {
			spinUntil(func() bool { return !c.Empty() })
			_, _ = c.Peek(&pkt)
			c.Advance()
			delay(uint64(i) * 5)
			if c.Release() {
				wake.wake()
			}
		}
	}()
	slept := 0
	for i := range rounds {
		for !p.Push(0, uint64(i), nil, nil, nil) {
			slept++
			if !wake.sleep() {
				t.Fatalf("message %d: the ring has room and the writer sleeps", i)
			}
		}
	}
	<-done
	t.Logf("slept %d times in %d messages", slept, rounds)
}

// TestAway: an owner that is away is woken by what is urgent, one that sleeps by anything, one that
// is awake by nothing, and each once.
func TestAway(t *testing.T) {
	in, err := NewInbox(alignedBytes(InboxBytes))
	require.NoError(t, err)
	for _, c := range []struct {
		mark           func()
		any, urgentToo bool
	}{{in.Unpark, false, false}, {in.Leave, false, true}, {in.Park, true, true}} {
		c.mark()
		require.Equal(t, c.any, in.Raise(5, false))
		require.Equal(t, c.urgentToo && !c.any, in.Raise(5, true))
		require.False(t, in.Raise(6, true), "woken already")
		var got []uint32
		in.Take(func(slot uint32) { got = append(got, slot) })
		require.Equal(t, []uint32{5, 6}, got)
	}
}

// TestInboxManyRaisers: no raise of any slot by any peer is lost.
func TestInboxManyRaisers(t *testing.T) {
	in, err := NewInbox(alignedBytes(InboxBytes))
	if err != nil {
		t.Fatal(err)
	}
	const raisers = 4
	rounds := parkRounds() / 10
	var posted, seen [raisers]atomic.Int64
	for r := range raisers {
		go func() {
			for i := range rounds {
				posted[r].Store(int64(i) + 1)
				in.Raise(uint32(r*1021), false)
				spinUntil(func() bool { return seen[r].Load() > int64(i) })
			}
		}()
	}
	var stall testlevel.Stall
	for n, all := 1, 0; all < raisers*rounds; n++ {
		if in.Pending() {
			in.Take(func(slot uint32) { seen[slot/1021].Store(posted[slot/1021].Load()) })
		} else if n%1024 == 0 {
			runtime.Gosched()
			if stall.Lasts(testlevel.Patience(20*time.Second), all) {
				t.Fatalf("a raise was lost: posted %v, seen %v", &posted, &seen)
			}
		}
		all = 0
		for r := range raisers {
			all += int(seen[r].Load())
		}
	}
}

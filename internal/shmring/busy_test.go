package shmring

import (
	"sync/atomic"
	"testing"
)

// TestBusy has a writer that copies to the reader's memory while it is allowed, and a reader that
// forbids it again and again: after that, and with the writer not busy, nothing may change there.
func TestBusy(t *testing.T) {
	p, c, _ := newPair(t, MinBytes)
	rounds := parkRounds() / 10
	var allowed, stop atomic.Bool
	var memory atomic.Uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(1); !stop.Load(); n++ {
			p.SetBusy(true)
			if allowed.Load() {
				delay(n)
				memory.Store(n)
			}
			p.SetBusy(false)
		}
	}()
	defer func() {
		stop.Store(true)
		<-done
	}()
	for i := range rounds {
		allowed.Store(true)
		delay(uint64(i) * 7)
		allowed.Store(false)
		spinUntil(func() bool { return !c.Busy() })
		before := memory.Load()
		delay(uint64(i))
		if after := memory.Load(); after != before {
			t.Fatalf("round %d: the writer copied to memory that was taken back", i)
		}
	}
}

package shmring

import (
	"fmt"
	"runtime"
	"testing"
)

// take polls until there is a packet, and takes it.
func take(c *Consumer, pkt *Packet) {
	for spins := 0; ; spins++ {
		if ok, _ := c.Peek(pkt); ok {
			c.Advance()
			c.Release()
			return
		}
		if spins&0xfff == 0xfff {
			runtime.Gosched()
		}
	}
}

// BenchmarkPingPong measures a round trip between two goroutines.
func BenchmarkPingPong(b *testing.B) {
	for _, size := range []int{8, 48, 1024, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p1, c1, _ := newPair(b, 256<<10)
			p2, c2, _ := newPair(b, 256<<10)
			c1.SetHot(true)
			c2.SetHot(true)
			buf := make([]byte, size)
			done := make(chan struct{})
			go func() {
				defer close(done)
				runtime.LockOSThread()
				var pkt Packet
				for range b.N {
					take(c1, &pkt)
					p2.Push(1, 2, nil, nil, buf)
					_ = p2.NeedsSignal()
				}
			}()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var pkt Packet
			b.ResetTimer()
			for range b.N {
				p1.Push(1, 2, nil, nil, buf)
				_ = p1.NeedsSignal()
				take(c2, &pkt)
			}
			<-done
		})
	}
}

// BenchmarkStream measures one direction.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{8, 48, 1024, 32 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p, c, _ := newPair(b, 256<<10)
			c.SetHot(true)
			buf := make([]byte, size)
			done := make(chan struct{})
			b.SetBytes(int64(size))
			go func() {
				defer close(done)
				var pkt Packet
				for range b.N {
					take(c, &pkt)
				}
			}()
			for range b.N {
				for spins := 0; !p.Push(1, 2, nil, nil, buf); spins++ {
					if spins&0xfff == 0xfff {
						runtime.Gosched()
					}
				}
				_ = p.NeedsSignal()
			}
			<-done
		})
	}
}

// BenchmarkPush measures writing and reading of a message on one processor.
func BenchmarkPush(b *testing.B) {
	for _, size := range []int{0, 8, 24, 48} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p, c, _ := newPair(b, 256<<10)
			buf := make([]byte, size)
			var pkt Packet
			for range b.N {
				p.Push(1, 2, nil, nil, buf)
				_ = p.NeedsSignal()
				take(c, &pkt)
			}
		})
	}
}

// BenchmarkIdle measures polling empty rings.
func BenchmarkIdle(b *testing.B) {
	_, c, _ := newPair(b, MinBytes)
	in, _ := NewInbox(alignedBytes(InboxBytes))
	b.Run("ring", func(b *testing.B) {
		for range b.N {
			if !c.Empty() {
				b.Fatal()
			}
		}
	})
	b.Run("inbox", func(b *testing.B) {
		for range b.N {
			if in.Pending() {
				b.Fatal()
			}
		}
	})
}

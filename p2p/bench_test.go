package p2p_test

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// BenchmarkSendRecv measures round trips of 8 bytes between two ranks of this process, above all
// the allocations of both. For times between processes run ./bench.
func BenchmarkSendRecv(b *testing.B) {
	for _, device := range []string{"", "shm", "tcp"} {
		b.Run(cmp.Or(device, "loop"), func(b *testing.B) {
			skipUnlessLinux(b, device)
			p2ptest.RunConfig(b, 2, p2p.Config{Device: device}, func(w *p2p.World) {
				if err := roundTrips(w, 1, 1000); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.ReportAllocs()
					b.ResetTimer()
				}
				if err := roundTrips(w, 1, b.N); err != nil {
					b.Error(err)
				}
				if w.Rank() == 0 {
					b.StopTimer()
				}
			})
		})
	}
}

// BenchmarkGoroutines has goroutines of each rank share the round trips: with more of them one is
// not to take much longer.
func BenchmarkGoroutines(b *testing.B) {
	for _, device := range []string{"", "shm", "tcp"} {
		for _, n := range []int{1, 8, 64, 1024} {
			b.Run(fmt.Sprintf("%s/%d", cmp.Or(device, "loop"), n), func(b *testing.B) {
				skipUnlessLinux(b, device)
				p2ptest.RunConfig(b, 2, p2p.Config{Device: device}, func(w *p2p.World) {
					var all sync.WaitGroup
					for id := range n {
						all.Go(func() {
							if err := roundTrips(w, p2p.Tag(id), (b.N+n-1)/n); err != nil {
								b.Error(err)
							}
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// roundTrips bounces n messages of 8 bytes with a tag between ranks 0 and 1.
func roundTrips(w *p2p.World, tag p2p.Tag, n int) error {
	buf := make([]byte, 8)
	for range n {
		if w.Rank() == 0 {
			if err := w.Send(background, 1, tag, buf); err != nil {
				return err
			}
		}
		if _, err := w.Recv(background, tag, p2p.MaskExact, buf); err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := w.Send(background, 0, tag, buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// BenchmarkWindow has one goroutine play both ranks, which exchange windows of 64 messages of 8
// bytes: what it reports is what a message costs the processors in all, in a build that they do not
// have to wait for.
func BenchmarkWindow(b *testing.B) { bothRanks(b, windows) }

// BenchmarkMany is BenchmarkWindow by the calls that post many messages at once.
func BenchmarkMany(b *testing.B) {
	bothRanks(b, func(b *testing.B, from, to *p2p.World) {
		var ins, outs [64]p2p.Transfer
		var sends, recvs []p2p.Request
		buf := make([]byte, 8)
		for i := range ins {
			ins[i] = p2p.Transfer{Rank: from.Rank(), Tag: 1, Buf: buf}
			outs[i] = p2p.Transfer{Rank: to.Rank(), Tag: 1, Buf: buf}
		}
		b.ReportAllocs()
		for b.Loop() {
			recvs = to.Comm().IrecvAll(recvs[:0], ins[:])
			sends = from.Comm().IsendAll(sends[:0], outs[:])
			for !ended(b, recvs) {
				_, _, _ = from.Iprobe(2, p2p.MaskExact)
			}
			if err := p2p.WaitAll(background, sends, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSolo has one goroutine play both ranks, one of which sends a message of 8 bytes that the
// other then receives, in turn: it is BenchmarkWindow for blocking calls.
func BenchmarkSolo(b *testing.B) {
	bothRanks(b, func(b *testing.B, from, to *p2p.World) {
		buf := make([]byte, 8)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := from.Send(background, to.Rank(), 1, buf); err != nil {
				b.Fatal(err)
			}
			if _, err := to.Recv(background, 1, p2p.MaskExact, buf); err != nil {
				b.Fatal(err)
			}
			from, to = to, from
		}
	})
}

// BenchmarkVec is a message of many short parts, which lie apart from each other: by IsendVec and
// IrecvVec, and by a program that packs and unpacks them itself. Those of 64 and 256 bytes are
// beyond the eager limit.
func BenchmarkVec(b *testing.B) {
	for _, v := range []struct{ parts, size int }{{8, 8}, {1024, 8}, {1024, 64}, {1024, 256}} {
		n := v.parts * v.size
		out, in, sent, got := apart(v.parts, v.size), apart(v.parts, v.size), make([]byte, n), make([]byte, n)
		for name, exchange := range map[string]func(b *testing.B, from, to *p2p.Comm){
			"vec": func(b *testing.B, from, to *p2p.Comm) {
				delivered(b, from, to.IrecvVec(from.Rank(), 1, in), from.IsendVec(to.Rank(), 1, out))
			},
			"packed": func(b *testing.B, from, to *p2p.Comm) {
				r := to.Irecv(from.Rank(), 1, got)
				pack(sent, out)
				delivered(b, from, r, from.Isend(to.Rank(), 1, sent))
				unpack(in, got)
			},
		} {
			b.Run(fmt.Sprintf("%dx%d/%s", v.parts, v.size, name), func(b *testing.B) {
				bothRanks(b, func(b *testing.B, from, to *p2p.World) {
					for b.Loop() {
						exchange(b, from.Comm(), to.Comm())
					}
				})
			})
		}
	}
}

// pack and unpack are what a program does that knows its parts to have 8 bytes, or any size.
func pack(buf []byte, parts [][]byte) {
	if len(parts[0]) == 8 {
		for i, part := range parts {
			*(*[8]byte)(buf[8*i:]) = *(*[8]byte)(part)
		}
		return
	}
	for _, part := range parts {
		buf = buf[copy(buf, part):]
	}
}

func unpack(parts [][]byte, buf []byte) {
	if len(parts[0]) == 8 {
		for i, part := range parts {
			*(*[8]byte)(part) = *(*[8]byte)(buf[8*i:])
		}
		return
	}
	for _, part := range parts {
		buf = buf[copy(part, buf):]
	}
}

// apart are n parts of so many bytes, each in cache lines of its own.
func apart(n, size int) (parts [][]byte) {
	stride := max(64, 2*size)
	memory := make([]byte, stride*n)
	for i := range n {
		parts = append(parts, memory[stride*i:][:size:size])
	}
	return parts
}

// delivered returns when both ends of a message are over; c is the sender's.
func delivered(b *testing.B, c *p2p.Comm, recv, send p2p.Request) {
	for reqs := []p2p.Request{recv}; !ended(b, reqs); {
		_, _, _ = c.Iprobe(0, 2)
	}
	if _, err := send.Wait(background); err != nil {
		b.Fatal(err)
	}
}

// bothRanks runs a benchmark on the worlds of two ranks by one goroutine.
func bothRanks(b *testing.B, run func(b *testing.B, from, to *p2p.World)) {
	for _, device := range []string{"", "shm"} {
		b.Run(cmp.Or(device, "loop"), func(b *testing.B) {
			skipUnlessLinux(b, device)
			worlds, over := make([]*p2p.World, 2), make(chan struct{})
			var ready sync.WaitGroup
			ready.Add(2)
			p2ptest.RunConfig(b, 2, p2p.Config{Device: device, Progress: p2p.ProgressManual}, func(w *p2p.World) {
				worlds[w.Rank()] = w
				if err := roundTrips(w, 1, 10); err != nil { // connects them
					b.Error(err)
				}
				ready.Done()
				ready.Wait()
				if w.Rank() == 1 {
					<-over
					return
				}
				defer close(over)
				run(b, worlds[0], worlds[1])
			})
		})
	}
}

// windows sends messages from one world to the other, and reports what each step of one costs.
func windows(b *testing.B, from, to *p2p.World) {
	const window = 64
	var sends, recvs [window]p2p.Request
	var took [4]time.Duration
	buf := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		lap := func(step int) {
			now := time.Now()
			took[step] += now.Sub(start)
			start = now
		}
		for i := range recvs {
			recvs[i] = to.Irecv(1, p2p.MaskExact, buf)
		}
		lap(0)
		for i := range sends {
			sends[i] = from.Isend(1, 1, buf)
		}
		lap(1)
		for !ended(b, recvs[:]) {
			_, _, _ = from.Iprobe(2, p2p.MaskExact)
		}
		lap(2)
		if err := p2p.WaitAll(background, sends[:], nil); err != nil {
			b.Fatal(err)
		}
		lap(3)
	}
	for i, name := range []string{"Irecv", "Isend", "received", "sent"} {
		b.ReportMetric(float64(took[i].Nanoseconds())/float64(b.N)/window, name+"-ns/msg")
	}
}

// ended reports whether all of reqs have ended, and consumes them then.
func ended(b *testing.B, reqs []p2p.Request) bool {
	all, err := p2p.TestAll(reqs, nil)
	if err != nil {
		b.Fatal(err)
	}
	return all
}

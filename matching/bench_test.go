package matching

import (
	"fmt"
	"testing"
	"time"
)

var sinkBool bool

func BenchmarkPostedPostMatchExact(b *testing.B) {
	q, v := NewPosted[*int](1), new(int)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Post(uint64(i), exact, v)
		_, sinkBool = q.Match(uint64(i))
	}
}

func BenchmarkPostedPostMatchAny(b *testing.B) {
	q, v := NewPosted[*int](1), new(int)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Post(0, 0, v)
		_, sinkBool = q.Match(uint64(i))
	}
}

func BenchmarkPostedPostRemove(b *testing.B) {
	q, v := NewPosted[*int](1), new(int)
	for i := 0; b.Loop(); i++ {
		_, sinkBool = q.Remove(q.Post(uint64(i), exact, v))
	}
}

func BenchmarkPostedMatchEmpty(b *testing.B) {
	q := NewPosted[*int](1)
	for i := 0; b.Loop(); i++ {
		_, sinkBool = q.Match(uint64(i))
	}
}

func BenchmarkUnexpectedMatchEmpty(b *testing.B) {
	q := NewUnexpected[*int](1)
	for i := 0; b.Loop(); i++ {
		_, sinkBool = q.Match(uint64(i), exact)
	}
}

func BenchmarkUnexpectedAddMatchExact(b *testing.B) {
	q, v := NewUnexpected[*int](1), new(int)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.Add(uint64(i), v)
		_, sinkBool = q.Match(uint64(i), exact)
	}
}

func BenchmarkUnexpectedAddMatchAny(b *testing.B) {
	q, v := NewUnexpected[*int](1), new(int)
	for i := 0; b.Loop(); i++ {
		q.Add(uint64(i), v)
		_, sinkBool = q.Match(0, 0)
	}
}

var depths = []int{0, 100, 10_000, 1_000_000}

// BenchmarkDepthPosted is one exact post and match behind D other receives.
func BenchmarkDepthPosted(b *testing.B) {
	for _, d := range depths {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for i := range d {
				q.Post(uint64(i), exact, v)
			}
			for i := uint64(d); b.Loop(); i++ {
				q.Post(i, exact, v)
				_, sinkBool = q.Match(i)
			}
		})
	}
}

// BenchmarkDepthPostedRandom takes receives out of a queue of depth D at
// random places, so that caches do not help.
func BenchmarkDepthPostedRandom(b *testing.B) {
	for _, d := range depths[1:] {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for i := range d {
				q.Post(uint64(i), exact, v)
			}
			rnd := uint64(1)
			for b.Loop() {
				rnd = rnd*6364136223846793005 + 1442695040888963407
				tag := (rnd >> 33) % uint64(d)
				_, sinkBool = q.Match(tag)
				q.Post(tag, exact, v)
			}
		})
	}
}

// BenchmarkDepthSameTag has D receives of the same tag.
func BenchmarkDepthSameTag(b *testing.B) {
	for _, d := range depths {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for range d {
				q.Post(7, exact, v)
			}
			for b.Loop() {
				q.Post(7, exact, v)
				_, sinkBool = q.Match(7)
			}
		})
	}
}

// BenchmarkDepthReturn matches the oldest of D receives of one tag that are all back in their
// places, before as many that never left, and puts it back.
func BenchmarkDepthReturn(b *testing.B) {
	for _, d := range depths[1:] {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for range d {
				q.Return(q.Place(q.Skip()), 7, exact, v)
			}
			for range d {
				q.Post(7, exact, v)
			}
			for b.Loop() {
				_, h, _ := q.Find(7)
				_, sinkBool = q.Match(7)
				q.Return(q.Place(h), 7, exact, v)
			}
		})
	}
}

// BenchmarkMasks is an exact post and match with receives of M other masks.
func BenchmarkMasks(b *testing.B) {
	for _, m := range []int{0, 1, 4, 16, 64} {
		b.Run(fmt.Sprint(m), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for i := range m {
				q.Post(1<<63, 1<<63|uint64(i), v)
			}
			for i := uint64(0); b.Loop(); i++ {
				q.Post(i, exact, v)
				_, sinkBool = q.Match(i)
			}
		})
	}
}

// BenchmarkDepthUnexpected adds and takes one message behind D others.
func BenchmarkDepthUnexpected(b *testing.B) {
	for _, mask := range []uint64{exact, 0xffff << 48} {
		for _, d := range depths {
			b.Run(fmt.Sprintf("mask=%x/%d", mask, d), func(b *testing.B) {
				q, v := NewUnexpected[*int](1), new(int)
				for i := range d {
					q.Add(uint64(i), v)
				}
				for range 20 { // until the index is built
					q.Match(1<<60, mask)
				}
				for b.Loop() {
					q.Add(1<<60, v)
					_, sinkBool = q.Match(1<<60, mask)
				}
			})
		}
	}
}

func BenchmarkBuildIndex(b *testing.B) {
	q, v := NewUnexpected[*int](1), new(int)
	const n = 1_000_000
	for i := range n {
		q.Add(uint64(i), v)
	}
	for b.Loop() {
		q.built = nil
		q.build(^uint64(0xff))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

// BenchmarkOverlapping asks for an exact tag behind D exact receives.
func BenchmarkOverlapping(b *testing.B) {
	for _, d := range depths {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for i := range d {
				q.Post(uint64(i), exact, v)
			}
			for b.Loop() {
				sinkBool = q.Overlapping(1<<40, exact, q.NextSeq())
			}
		})
	}
}

// BenchmarkScan is what a wildcard costs a message before it has an index.
func BenchmarkScan(b *testing.B) {
	q, v := NewUnexpected[*int](1), new(int)
	const n = 1_000_000
	for i := range n {
		q.Add(uint64(i), v)
	}
	for b.Loop() {
		_, seen := q.scan(1<<60, exact&^0xff)
		sinkBool = seen == n
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
}

// BenchmarkWindow posts 64 receives and then matches them.
func BenchmarkWindow(b *testing.B) {
	q, v := NewPosted[*int](1), new(int)
	const window = 64
	for i := uint64(0); b.Loop(); i += window {
		for k := range uint64(window) {
			q.Post(i+k, exact, v)
		}
		for k := range uint64(window) {
			_, sinkBool = q.Match(i + k)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/window, "ns/pair")
}

// BenchmarkFill reports the mean and the longest single Post on the way to a
// million receives.
func BenchmarkFill(b *testing.B) {
	const n = 1_000_000
	var worst time.Duration
	for b.Loop() {
		q, v := NewPosted[*int](1), new(int)
		last := time.Now()
		for i := range uint64(n) {
			q.Post(i, exact, v)
			now := time.Now()
			worst = max(worst, now.Sub(last))
			last = now
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
	b.ReportMetric(float64(worst.Microseconds()), "worst-us")
}

// BenchmarkTags has windows of 64 receives with each of P tags, in bursts of 16 a tag: the
// receives of P goroutines.
func BenchmarkTags(b *testing.B) {
	const window, burst = 64, 16
	for _, tags := range []uint64{8, 64, 1024} {
		b.Run(fmt.Sprint(tags), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for range window {
				for tag := range tags {
					q.Post(tag, exact, v)
				}
			}
			rnd := uint64(1)
			for b.Loop() {
				rnd = rnd*6364136223846793005 + 1442695040888963407
				tag := (rnd >> 33) % tags
				for range burst {
					_, sinkBool = q.Match(tag)
				}
				for range burst {
					q.Post(tag, exact, v)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/burst, "ns/pair")
		})
	}
}

// BenchmarkTurns is windows of 64 receives of each of many tags, as goroutines have them: a tag's
// window is matched and posted again, tag after tag.
func BenchmarkTurns(b *testing.B) {
	for _, tags := range []int{1, 8, 64, 1024} {
		b.Run(fmt.Sprint(tags), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for tag := range tags {
				for range 64 {
					q.Post(uint64(tag), exact, v)
				}
			}
			tag := uint64(0)
			for b.Loop() {
				for range 64 {
					_, sinkBool = q.Match(tag)
				}
				for range 64 {
					q.Post(tag, exact, v)
				}
				if tag++; tag == uint64(tags) {
					tag = 0
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/msg")
		})
	}
}

// BenchmarkAfterwards is one receive at a time in a queue that was long before.
func BenchmarkAfterwards(b *testing.B) {
	for _, d := range []int{0, 1000, 16000} {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			q, v := NewPosted[*int](1), new(int)
			for range d {
				q.Post(7, exact, v)
			}
			for range d {
				q.Match(7)
			}
			for b.Loop() {
				q.Post(7, exact, v)
				_, sinkBool = q.Match(7)
			}
		})
	}
}

package coll_test

import (
	"runtime"
	"testing"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// BenchmarkAllReduce sums 8 bytes of two ranks of this process, for profiles. For times between
// processes run ./bench.
func BenchmarkAllReduce(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("shm needs Linux")
	}
	p2ptest.RunConfig(b, 2, p2p.Config{Device: "shm"}, func(w *p2p.World) {
		g, err := coll.New(background, w.Comm())
		x := make([]float32, 2)
		for i := 0; err == nil && i < b.N; i++ {
			err = coll.AllReduce(background, g, coll.Sum[float32](), x)
		}
		if err != nil {
			b.Error(err)
			return
		}
		if err := g.Close(); err != nil {
			b.Error(err)
		}
	})
}

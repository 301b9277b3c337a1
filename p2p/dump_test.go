package p2p_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestDumpInWords: Dump, and the error of Shutdown, have tags as the program gave them, and no
// length of what has no buffer.
func TestDumpInWords(t *testing.T) {
	over := make(chan struct{})
	p2ptest.Run(t, 2, func(w *p2p.World) {
		defer w.Close()
		d := dup(t, w.Comm())                       // Comm 1
		turned := split(t, w.Comm(), 0, 1-w.Rank()) // Comm 2: {1, 0}
		if w.Rank() == 1 {
			assert.NoError(t, d.Send(background, 0, 4, []byte("abc")))
			<-over
			return
		}
		defer close(over)
		_, err := d.Probe(background, 1, 4)
		assert.NoError(t, err)
		d.Irecv(1, 5, make([]byte, 8))
		turned.Irecv(0, 6, make([]byte, 8))
		turned.Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 7))
		w.Comm().Irecv(p2p.AnySource, 7, nil)
		w.Irecv(8, 0xff, make([]byte, 9))
		w.Irecv(9, p2p.MaskExact, nil)
		d.Isend(1, 1, make([]byte, 64<<10))
		var calls sync.WaitGroup
		defer calls.Wait()
		for _, call := range []func() error{
			func() error { return second(d.Probe(background, 1, 0xa)) },
			func() error { _, err := d.Mprobe(background, 1, 0xb); return err },
			func() error { _, _, err := d.RecvAlloc(background, p2p.AnySource, 0xc, 0); return err },
		} {
			calls.Go(func() { assert.ErrorIs(t, call(), p2p.ErrClosed) })
		}
		for w.Metrics().PostedNow != 9 {
			runtime.Gosched()
		}
		var dump strings.Builder
		assert.NoError(t, w.Dump(&dump))
		for _, line := range []string{
			"from 1, tag 0x5 of Comm 1, 8 bytes", "from 1, tag 0x6 of Comm 2, 8 bytes", "from any, any tag of Comm 2, 7 bytes",
			"from any, tag 0x7, 0 bytes", "from any, raw tag 0x8 mask 0xff, 9 bytes", "from any, raw tag 0x9, 0 bytes",
			"from 1, tag 0xa of Comm 1, a probe", "from 1, tag 0xb of Comm 1, a probe", "from any, tag 0xc of Comm 1, RecvAlloc",
			"from 1, tag 0x4 of Comm 1, 3 bytes, eager", "requested: to 1, tag 0x1 of Comm 1, 65536 bytes",
		} {
			assert.Contains(t, dump.String(), "  "+line+"\n")
		}
		assert.NotContains(t, dump.String(), "0x8000")
		ctx, cancel := context.WithCancel(background)
		cancel()
		err = w.Shutdown(ctx)
		assert.ErrorContains(t, err, "RecvAlloc from any, tag 0xc of Comm 1, no message; probe from 1, tag 0xa of Comm 1, no message; "+
			"probe from 1, tag 0xb of Comm 1, no message; message from 1")
	})
}

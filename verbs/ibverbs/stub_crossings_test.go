package ibverbs_test

import (
	"context"
	"math"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
)

// Of the stand-in's enum call.
const (
	emptyPolls   = 6
	inlineWrites = 7
)

const tagComm = 1<<63 | 7 // of a message that the device reads

// count is how often the stand-in has counted a call.
func count(t *testing.T, call uintptr) int { return int(tell(t, "tmstub_calls", call, 0)) }

// tally is a Sink that counts.
type tally struct {
	transporttest.Recorder
	eager, delivered, fins, reads int
	hdr                           transport.RndvHdr // the newest request
	rndvs                         int
}

func (s *tally) Eager(int, uint32, uint64, []byte)       { s.eager++ }
func (s *tally) Matched(uint64, int, uint32, uint64)     {}
func (s *tally) Delivered(_ uint64, _ uint64, err error) { s.delivered++ }
func (s *tally) Fin(int, uint32)                         { s.fins++ }
func (s *tally) ReadDone(uint64, error)                  { s.reads++ }
func (s *tally) Rndv(_ int, h *transport.RndvHdr) {
	s.rndvs++
	s.hdr.VA, s.hdr.RKey, s.hdr.Len, s.hdr.AppCtx = h.VA, h.RKey, h.Len, h.AppCtx
}

// pair is two transports over the stand-in, with the sizes that suit it. The first sends.
type pair struct {
	t        *testing.T
	a, b     transport.Transport
	from, to tally
	buf, dst []byte            // a Region of each
	hdr      transport.RndvHdr // of buf; here, for it would escape
	id       uint64            // of the newest receive in the list
}

func newPair(t *testing.T, open transporttest.Opener) *pair {
	p := &pair{t: t, buf: make([]byte, 100_000), dst: make([]byte, 100_000)}
	var trs [2]transport.Transport
	for i, dev := range opener("tmstub0", "tmstub1")(t, 2) {
		tr, err := open(dev, i, 2, transporttest.Options{MaxEager: 8 << 10, SRQDepth: 2048}, []*tally{&p.from, &p.to}[i])
		require.NoError(t, err)
		region, err := dev.(verbs.Sharer).Share([][]byte{p.buf, p.dst}[i], -1)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, region.Close())
			require.NoError(t, tr.Close())
		})
		trs[i] = tr
	}
	p.a, p.b = trs[0], trs[1]
	for _, tr := range trs {
		for peer := range trs {
			require.NoError(t, tr.Connect(peer, trs[peer].Address()))
		}
	}
	transporttest.Meet(t, p.poll, p.a, p.b)
	return p
}

// ok is require.NoError without its cost.
func (p *pair) ok(err error) {
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) poll() {
	_, err := p.b.Poll()
	p.ok(err)
	_, err = p.a.Poll()
	p.ok(err)
}

// until polls until a count is n.
func (p *pair) until(count *int, n int) {
	for *count < n {
		p.poll()
	}
}

func (p *pair) eager(n int) {
	want := p.to.eager + n
	for range n {
		p.ok(p.a.SendEager(1, 0, tagComm, p.buf[:8]))
	}
	p.until(&p.to.eager, want)
}

// request registers the buffer and sends a request.
func (p *pair) request() transport.Region {
	r, err := p.a.Register(1, p.buf)
	p.ok(err)
	p.hdr = transport.RndvHdr{Tag: tagComm, VA: r.Addr(), RKey: r.RKey(), Len: uint64(len(p.buf))}
	p.ok(p.a.SendRndv(1, &p.hdr))
	return r
}

func (p *pair) rendezvous() {
	read, fin := p.to.reads+1, p.from.fins+1
	r := p.request()
	p.until(&p.to.rndvs, p.to.rndvs+1)
	p.ok(p.b.Read(0, p.dst[:p.to.hdr.Len], p.to.hdr.VA, p.to.hdr.RKey, 1))
	p.until(&p.to.reads, read)
	p.ok(p.b.SendFin(0, p.to.hdr.AppCtx))
	p.until(&p.from.fins, fin)
	p.ok(r.Dereg())
}

// add posts a receive to the device's list.
func (p *pair) add(buf []byte) {
	p.id++
	p.ok(p.b.TagList().Add(p.id, tagComm, ^uint64(0), buf, uint32(p.to.eager+p.to.rndvs)))
}

func (p *pair) expected() {
	want := p.to.delivered + 1
	p.add(p.dst[:8])
	p.ok(p.a.SendEager(1, 0, tagComm, p.buf[:8]))
	p.until(&p.to.delivered, want)
}

func (p *pair) offloaded() {
	want, fin := p.to.delivered+1, p.from.fins+1
	p.add(p.dst)
	r := p.request()
	p.until(&p.to.delivered, want)
	p.until(&p.from.fins, fin)
	p.ok(r.Dereg())
}

// crossings is how many f makes, polls that find nothing not counted.
func crossings(t *testing.T, f func()) int {
	empty, before := count(t, emptyPolls), runtime.NumCgoCall()
	f()
	return int(runtime.NumCgoCall()-before) - (count(t, emptyPolls) - empty)
}

// TestStubCrossings: what a message costs in crossings into C, at both ends together, to a tenth:
// a post, a poll, and its part of posting receives and of polling completions of sends. Nothing
// allocates.
func TestStubCrossings(t *testing.T) {
	if os.Getenv(onStub) == "" {
		t.Log(again(t, stub(t), "TestStubCrossings"))
		return
	}
	for name, c := range map[string]struct {
		open     transporttest.Opener
		play     func(p *pair)
		messages int // of play
		rounds   int
		most     float64
	}{
		"rc, one at a time":        {newRC, func(p *pair) { p.eager(1) }, 1, 256, 2.1},
		"rc, window of 64":         {newRC, func(p *pair) { p.eager(64) }, 64, 256, 1.1},
		"rc, rendezvous":           {newRC, (*pair).rendezvous, 1, 64, 6.1},
		"tmsrq, expected":          {newTM, (*pair).expected, 1, 256, 3},
		"rendezvous by the device": {newTM, (*pair).offloaded, 1, 64, 5.1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, c.open)
			play := func() { c.play(p) }
			for range c.rounds {
				play()
			}
			n := crossings(t, func() {
				for range c.rounds {
					play()
				}
			})
			each := float64(n-1) / float64(c.rounds*c.messages) // one of them has counted
			t.Logf("%.3f crossings a message", each)
			require.LessOrEqual(t, math.Round(each*10)/10, c.most)
			if !invariant.Enabled && !testlevel.Race {
				require.Zero(t, testing.AllocsPerRun(c.rounds, play))
			}
		})
	}
}

// TestStubCredit: credit comes back by an RDMA write of inline data for a quarter of the window, or
// more.
func TestStubCredit(t *testing.T) {
	if os.Getenv(onStub) == "" {
		t.Log(again(t, stub(t), "TestStubCredit"))
		return
	}
	const messages, size, window = 1000, 8000, 256 << 10
	before := count(t, inlineWrites)
	p2ptest.RunConfig(t, 2, p2p.Config{Device: "rdma", Transport: "rc"}, func(w *p2p.World) {
		buf := make([]byte, size)
		for range messages {
			if w.Rank() == 0 {
				require.NoError(t, w.Comm().Send(context.Background(), 1, 7, buf))
				continue
			}
			_, err := w.Comm().Recv(context.Background(), 0, 7, buf)
			require.NoError(t, err)
		}
	})
	writes := count(t, inlineWrites) - before
	t.Logf("%d bytes for each write", messages*size/writes)
	require.LessOrEqual(t, writes, messages*(size+100)/(window/4))
}

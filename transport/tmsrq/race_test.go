package tmsrq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// The scenarios of TMO 7.2 that are the transport's, by their numbers. Devices are strict; on their
// loop wire one packet of 1 KiB moves on each link at each poll, and the clock moves with the
// polls: every run is the same.

const (
	exact     = ^uint64(0)
	maxEager  = 32 << 10
	manySteps = 20_000
)

// packed returns a tag that names its source, rank src.
func packed(src int, tag uint32) uint64 { return 1<<63 | uint64(src)<<32 | uint64(tag) }

func fill(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7+i>>8)
	}
	return b
}

// raceRig is ranks on a fabric; messages go to rank 1, whose list is l.
type raceRig struct {
	t    *testing.T
	dev  []*soft.Device
	tr   []*tmsrq.Transport
	sink []*raceSink
	l    transport.TagList
	spin verbs.CQ // of rank 1's device, always empty
	gone int      // a rank that is polled no more, or -1
}

// raceSink is a Recorder that can do something inside of a call.
type raceSink struct {
	transporttest.Recorder
	incomplete func()
}

func (s *raceSink) Incomplete(id uint64, h *transport.RndvHdr) {
	s.incomplete()
	s.Recorder.Incomplete(id, h)
}

func newRaceRig(t *testing.T, tm softtest.TM, n int) *raceRig {
	t.Helper()
	return newRaceRigOf(t, raceDevices(t, raceFabric, tm, n))
}

func newRaceRigOf(t *testing.T, devices []*soft.Device) *raceRig {
	t.Helper()
	r, n := &raceRig{t: t, gone: -1, dev: devices}, len(devices)
	for i, d := range r.dev {
		r.sink = append(r.sink, &raceSink{incomplete: func() {}})
		tr, err := tmsrq.New(tmsrq.Config{Device: d, Rank: i, Size: n, MaxEager: maxEager, MaxTags: 64, SRQDepth: 64}, r.sink[i])
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, tr.Close()) })
		r.tr = append(r.tr, tr)
	}
	for i := range r.tr {
		for k := range r.tr {
			require.NoError(t, r.tr[i].Connect(k, r.tr[k].Address()))
		}
	}
	var all []transport.Transport
	for _, tr := range r.tr {
		all = append(all, tr)
	}
	transporttest.Meet(t, r.step, all...)
	r.l = r.tr[1].TagList()
	cq, err := r.dev[1].CreateCQ(verbs.CQInitAttr{CQE: 1})
	require.NoError(t, err)
	r.spin = cq
	t.Cleanup(r.freeSpin)
	return r
}

func (r *raceRig) freeSpin() {
	if r.spin != nil {
		require.NoError(r.t, r.spin.Destroy())
		r.spin = nil
	}
}

var raceFabric = softtest.FabricOptions{Seed: 1, MaxBurst: 1, MaxPayload: 1024, Step: 10 * time.Microsecond}

func raceDevices(t *testing.T, opts softtest.FabricOptions, tm softtest.TM, n int) (list []*soft.Device) {
	tm.Strict = true
	f := softtest.NewFabric(opts)
	for i := range n {
		list = append(list, open(t, f, i, tm))
	}
	return list
}

// step polls every rank once.
func (r *raceRig) step() {
	r.t.Helper()
	for i, tr := range r.tr {
		if i != r.gone {
			_, err := tr.Poll()
			require.NoError(r.t, err, "rank %d", i)
		}
	}
}

// unseen lets all devices work n times; rank 1 does not poll its completions.
func (r *raceRig) unseen(n int) {
	r.t.Helper()
	for range n {
		_, err := r.tr[0].Poll()
		require.NoError(r.t, err)
		_, err = verbstest.Poll(r.spin, make([]verbs.WC, 1))
		require.NoError(r.t, err)
	}
}

func (r *raceRig) until(what string, cond func() bool) {
	r.t.Helper()
	for range manySteps {
		if cond() {
			return
		}
		r.step()
	}
	r.t.Fatal("waited in vain for " + what)
}

// settle polls until nothing more happens.
func (r *raceRig) settle() {
	r.t.Helper()
	for range 500 {
		r.step()
	}
}

// of returns the events of a kind at a rank.
func (r *raceRig) of(rank int, kind string) (out []transporttest.Event) {
	for _, e := range r.sink[rank].Events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// event waits for the n-th event of a kind at rank 1.
func (r *raceRig) event(kind string, n int) transporttest.Event {
	r.t.Helper()
	r.until(kind, func() bool { return len(r.of(1, kind)) > n })
	return r.of(1, kind)[n]
}

func (r *raceRig) add(id, tag uint64, buf []byte) {
	r.t.Helper()
	require.NoError(r.t, r.l.Add(id, tag, exact, buf, uint32(len(r.of(1, "eager")))))
}

func (r *raceRig) send(from int, tag uint64, payload []byte) {
	r.t.Helper()
	require.NoError(r.t, r.tr[from].SendEager(1, uint32(from), tag, payload))
}

// rndv sends rank 1 a request for data, as a message of n bytes.
func (r *raceRig) rndv(tag uint64, data []byte, n uint64) *transport.RndvHdr {
	r.t.Helper()
	region, err := r.tr[0].Register(1, data)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, region.Dereg()) })
	h := &transport.RndvHdr{AppCtx: 77, Tag: tag, VA: region.Addr(), RKey: region.RKey(), Len: n, Extra: []byte("software header!")}
	require.NoError(r.t, r.tr[0].SendRndv(1, h))
	return h
}

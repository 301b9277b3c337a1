//go:build linux

package soft_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// shareRig is a reader with READs from a source, each of which only its own polls move.
type shareRig struct {
	t              *testing.T
	rank           int // the reader's
	reader, source *soft.Device
	rpd, spd       verbs.PD
	rcq, scq       verbs.CQ
	channel        verbs.CompChannel // of rcq
	rq, sq         verbs.QP
	smr            verbs.MR
	rmr            []verbs.MR
	src            []byte
	dst            [][]byte
	posted, ended  int
	lastStatus     verbs.WCStatus
	failing        map[int]bool // READs whose region was deregistered
	strict         bool         // pair makes queue pairs in which no READ fails alone
	refused        int          // of them, not 0 where some have failed
	owner          sync.Mutex   // the reader's, in asynchronous mode
}

// eachReader runs a test with a reader of rank 0, and with one of rank 1.
func eachReader(t *testing.T, test func(t *testing.T, r *shareRig)) {
	for rank := range 2 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) { test(t, newShareRig(t, soft.Config{}, rank)) })
	}
}

func newShareRig(t *testing.T, cfg soft.Config, rank int) *shareRig {
	devs := shmOpener(cfg)(t, 2)
	r := &shareRig{t: t, rank: rank, reader: devs[rank].(*soft.Device), source: devs[1-rank].(*soft.Device), src: make([]byte, 2<<20), failing: map[int]bool{}}
	for i := range r.src {
		r.src[i] = byte(i*7 + i>>9)
	}
	r.channel = must(r.reader.CreateCompChannel())
	r.rpd, r.rcq = must(r.reader.AllocPD()), must(r.reader.CreateCQ(verbs.CQInitAttr{CQE: 1024, Channel: r.channel}))
	r.spd, r.scq = must(r.source.AllocPD()), must(r.source.CreateCQ(verbs.CQInitAttr{CQE: 1024}))
	r.rq, r.sq = r.pair()
	r.smr = must(r.spd.RegMR(r.src, verbs.AccessRemoteRead))
	t.Cleanup(func() {
		r.owner.Lock()
		for _, m := range append(r.rmr, r.smr) {
			_ = m.Dereg()
		}
		for _, end := range []func() error{r.rq.Destroy, r.sq.Destroy, r.rcq.Destroy, r.channel.Close, r.scq.Destroy, r.rpd.Dealloc, r.spd.Dealloc} {
			_ = end()
		}
		r.owner.Unlock()
		_, _ = r.reader.Close(), r.source.Close()
	})
	r.read(1) // connects
	r.until("it connects", func() bool { r.pollReader(); r.pollSource(); return r.ended == 1 })
	return r
}

// pair connects another pair of queue pairs.
func (r *shareRig) pair() (rq, sq verbs.QP) {
	qp := func(pd verbs.PD, cq verbs.CQ) verbs.QP {
		return must(pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC, ReadFaults: !r.strict,
			Cap: verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	}
	rq, sq = qp(r.rpd, r.rcq), qp(r.spd, r.scq)
	soft.RaiseQP(r.t, rq, r.source, sq.Num(), 7)
	soft.RaiseQP(r.t, sq, r.reader, rq.Num(), 7)
	return rq, sq
}

// read posts a READ of n bytes, which begin at another byte each time.
func (r *shareRig) read(n int, flags ...verbs.SendFlags) { r.readTo(make([]byte, n), flags...) }

func (r *shareRig) readTo(dst []byte, flags ...verbs.SendFlags) {
	mr := must(r.rpd.RegMR(dst, verbs.AccessLocalWrite))
	r.dst, r.rmr = append(r.dst, dst), append(r.rmr, mr)
	signaled := verbs.SendSignaled
	for _, f := range flags {
		signaled |= f
	}
	_ = must(r.rq.PostSend(&verbs.SendWR{WRID: uint64(r.posted), Opcode: verbs.WRRDMARead, Flags: signaled,
		SGList: []verbs.SGE{{Data: dst, LKey: mr.LKey()}}, RemoteAddr: r.smr.Addr() + uint64(r.posted), RKey: r.smr.RKey()}))
	r.posted++
}

func (r *shareRig) pollSource() { var wc [8]verbs.WC; _ = must(verbstest.Poll(r.scq, wc[:])) }

// pollReader takes completions, which come in order, and looks at what was read.
func (r *shareRig) pollReader() {
	var wc [8]verbs.WC
	for _, w := range wc[:must(verbstest.Poll(r.rcq, wc[:]))] {
		require.EqualValues(r.t, r.ended, w.WRID)
		r.lastStatus = w.Status
		if r.failing[r.ended] {
			// It may have ended before.
			require.Contains(r.t, []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCSuccess}, w.Status, "READ %d", r.ended)
			r.refused += int(w.Status)
		} else if w.Status == verbs.WCSuccess {
			require.True(r.t, bytes.Equal(r.src[r.ended:][:len(r.dst[r.ended])], r.dst[r.ended]), "READ %d", r.ended)
		}
		r.ended++
	}
}

func (r *shareRig) until(what string, cond func() bool) {
	for start := time.Now(); !cond(); {
		require.Less(r.t, time.Since(start), testlevel.Patience(20*time.Second), what)
	}
}

// untouched: whatever the source does now, no buffer is written to any more.
func (r *shareRig) untouched() {
	for _, b := range r.dst {
		clear(b)
	}
	for range 200 {
		r.pollSource()
	}
	for _, b := range r.dst {
		require.True(r.t, bytes.Equal(make([]byte, len(b)), b))
	}
}

// settled: all READs have ended, and no response is awaited.
func (r *shareRig) settled() bool {
	r.pollReader()
	r.pollSource()
	shares, awaited := soft.Waiting(r.rq)
	return r.ended == r.posted && shares == 0 && awaited == 0
}

// stillPushed: the next READ is pushed, since no grants are lost.
func (r *shareRig) stillPushed() {
	before := soft.Pushed(r.reader)
	r.read(100 << 10)
	r.pollSource()
	r.until("it ends", r.settled)
	require.Equal(r.t, before+1, soft.Pushed(r.reader))
}

// TestBothCopy: where both ends poll, by turns in any rhythm, each copies a part of the READs.
func TestBothCopy(t *testing.T) {
	r := newShareRig(t, soft.Config{}, 0)
	rng := rand.New(rand.NewPCG(1, rand.Uint64()))
	for range 30 {
		for range 1 + rng.IntN(40) {
			r.read([]int{8, 1 << 10, 32 << 10, 64 << 10, 300 << 10, 1 << 20}[rng.IntN(6)])
		}
		turns := 1 + rng.IntN(20)
		r.until("READs end", func() bool {
			for range rng.IntN(turns + 1) {
				r.pollReader()
			}
			for range rng.IntN(turns + 1) {
				r.pollSource()
			}
			return r.ended == r.posted
		})
	}
	r.until("responses come", r.settled)
	require.NotZero(t, soft.Pushed(r.reader))
	r.stillPushed()
	r.untouched()
}

// TestSharesOfTwo: of two queue pairs of one link one ends again and again with READs under way,
// which ends the pushes for the other too: those are read, and later ones pushed.
func TestSharesOfTwo(t *testing.T) {
	r := newShareRig(t, soft.Config{}, 0)
	rng := rand.New(rand.NewPCG(3, rand.Uint64()))
	buf := make([]byte, 64<<10)
	mr := must(r.rpd.RegMR(buf, verbs.AccessLocalWrite))
	defer func() { require.NoError(t, mr.Dereg()) }()
	for range 40 {
		rq, sq := r.pair()
		for range 1 + rng.IntN(16) {
			_ = must(rq.PostSend(&verbs.SendWR{Opcode: verbs.WRRDMARead, SGList: []verbs.SGE{{Data: buf, LKey: mr.LKey()}},
				RemoteAddr: r.smr.Addr(), RKey: r.smr.RKey()}))
			r.read([]int{40 << 10, 300 << 10}[rng.IntN(2)])
		}
		for range rng.IntN(100) { // at the end the shares are taken back
			r.pollReader()
		}
		for range rng.IntN(4) {
			r.pollSource()
		}
		require.NoError(t, rq.Destroy())
		clear(buf)
		r.until("READs end", r.settled)
		require.NoError(t, sq.Destroy())
		require.True(t, bytes.Equal(make([]byte, len(buf)), buf))
		r.stillPushed()
	}
}

// TestHalves: of a long READ the rank that is lower copies the first half, also if it is alone; the
// reader copies shorter ones.
func TestHalves(t *testing.T) { eachReader(t, halves) }

func halves(t *testing.T, r *shareRig) {
	half := func(n int) {
		first := r.posted
		r.read(n)
		shares, _ := soft.Waiting(r.rq)
		require.Equal(t, 1, shares)
		for range 4 {
			r.pollSource()
		}
		want := make([]byte, n)
		if r.rank == 0 {
			copy(want[n-n/2:], r.src[first:][n-n/2:n])
		} else {
			copy(want[:n/2], r.src[first:])
		}
		require.True(t, bytes.Equal(want, r.dst[first]))
		r.until("it ends", r.settled)
	}
	half(64 << 10)
	half(1<<20 + 1)
	r.read(64<<10 - 1)
	shares, awaited := soft.Waiting(r.rq)
	require.Zero(t, shares+awaited)
	r.until("it ends", r.settled)
}

// TestSharesAreTakenBack: a source that does not poll holds up no READ, and writes nothing later.
func TestSharesAreTakenBack(t *testing.T) { eachReader(t, sharesAreTakenBack) }

func sharesAreTakenBack(t *testing.T, r *shareRig) {
	for range 3 {
		for range 16 {
			r.read(100 << 10)
		}
		shares, _ := soft.Waiting(r.rq)
		require.Equal(t, 16, shares)
		r.until("READs end", func() bool { r.pollReader(); return r.ended == r.posted })
		r.untouched()
		r.until("responses come", r.settled)
	}
	require.Zero(t, soft.Pushed(r.reader))
}

// TestMoreThanCanBeShared: of READs of which no more can be under way the reader copies all.
func TestMoreThanCanBeShared(t *testing.T) {
	eachReader(t, func(t *testing.T, r *shareRig) {
		for range 24 {
			r.read(100 << 10)
		}
		shares, awaited := soft.Waiting(r.rq)
		require.Equal(t, 16, shares)
		require.Equal(t, 16, awaited)
		r.until("READs end", r.settled)
		require.Equal(t, verbs.WCSuccess, r.lastStatus)
	})
}

// TestSharesOfOneWhoGoes: the reader's queue pair ends in the middle.
func TestSharesOfOneWhoGoes(t *testing.T) {
	for _, end := range []func(r *shareRig) error{
		func(r *shareRig) error { return r.rq.Destroy() },
		func(r *shareRig) error { return r.rq.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState) },
		func(r *shareRig) error { return r.rq.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState) },
	} {
		r := newShareRig(t, soft.Config{}, 0)
		for range 8 {
			r.read(1 << 20)
		}
		r.pollReader()
		r.pollSource()
		require.NoError(t, end(r))
		r.untouched()
	}
}

// TestSharesOfARegionThatGoes: READs of a region that is deregistered fail alone, each for itself.
func TestSharesOfARegionThatGoes(t *testing.T) { eachReader(t, sharesOfARegionThatGoes) }

func sharesOfARegionThatGoes(t *testing.T, r *shareRig) {
	for range 8 {
		r.read(1 << 20)
	}
	r.pollSource()
	require.NoError(t, r.smr.Dereg())
	r.until("READs end", func() bool { r.pollReader(); r.pollSource(); return r.ended == r.posted })
	require.Equal(t, verbs.WCRemAccessErr, r.lastStatus)
	require.Equal(t, verbs.QPSRTS, r.rq.State())
	r.until("responses come", r.settled)
}

// TestSharesInARegionThatGoes: what the reader deregisters, while the source copies into it or
// before, is written to no more, and its READ fails alone.
func TestSharesInARegionThatGoes(t *testing.T) { eachReader(t, sharesInARegionThatGoes) }

func sharesInARegionThatGoes(t *testing.T, r *shareRig) {
	rng := rand.New(rand.NewPCG(2, rand.Uint64()))
	rounds := 50
	if testlevel.Quick() {
		rounds = 10
	}
	for range rounds {
		first := r.posted
		for k := range 24 {
			n := []int{40 << 10, 1 << 20}[rng.IntN(2)]
			if k == 8 { // it and those behind it wait in the queue
				r.read(n, verbs.SendFence)
			} else {
				r.read(n)
			}
		}
		for range rng.IntN(30) {
			r.pollReader()
			r.pollSource()
		}
		for i := first; i < r.posted; i++ {
			if i >= r.ended && rng.IntN(2) == 0 {
				require.NoError(t, r.rmr[i].Dereg())
				clear(r.dst[i])
				r.failing[i] = true
			}
		}
		r.until("READs end", r.settled)
		for i := first; i < r.posted; i++ {
			if r.failing[i] {
				require.True(t, bytes.Equal(make([]byte, len(r.dst[i])), r.dst[i]), "READ %d", i)
			} else {
				require.NoError(t, r.rmr[i].Dereg())
			}
		}
	}
	require.NotZero(t, soft.Pushed(r.reader))
	require.NotZero(t, r.refused)
	require.Equal(t, verbs.QPSRTS, r.rq.State())
}

// TestSourceStopsInACopy: while the source is in the middle of a copy, buffers of READs are not
// given back: their regions stay, and a queue pair that has failed does not flush them.
func TestSourceStopsInACopy(t *testing.T) { eachReader(t, sourceStopsInACopy) }

func sourceStopsInACopy(t *testing.T, r *shareRig) {
	begin := func() (first int, release func()) {
		first, release = r.posted, soft.HoldCopy(r.sq)
		for range 4 {
			r.read(1 << 20)
		}
		for range 100 {
			r.pollReader()
		}
		return first, release
	}
	first, release := begin()
	for range 3 {
		require.ErrorIs(t, r.rmr[first].Dereg(), syscall.EBUSY)
		require.ErrorContains(t, r.rmr[first].Dereg(), "a peer is in the middle of a copy to the memory region")
	}
	require.NoError(t, r.smr.Dereg()) // what the source has is its own
	release()
	require.NoError(t, r.rmr[first].Dereg())
	r.failing[first] = true
	r.until("READs end", r.settled)
	r.smr = must(r.spd.RegMR(r.src, verbs.AccessRemoteRead))

	first, release = begin()
	require.NoError(t, r.rq.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	ended := r.ended
	_ = must(r.rq.PostSend(&verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled, WRID: uint64(r.posted)}))
	r.posted++
	for range 100 {
		r.pollReader()
	}
	require.Equal(t, ended, r.ended, "its buffer may be written to")
	require.ErrorIs(t, r.rmr[first+3].Dereg(), syscall.EBUSY)
	release()
	r.until("they are flushed", func() bool { r.pollReader(); return r.ended == r.posted })
	require.Equal(t, verbs.WCWRFlushErr, r.lastStatus)
	require.NoError(t, r.rmr[first+3].Dereg())
	r.untouched()
}

// TestReadFailsInACopy: a queue pair that fails since the device's own half of a READ does is not
// flushed either while the source is in the middle of its half.
func TestReadFailsInACopy(t *testing.T) {
	eachReader(t, func(t *testing.T, r *shareRig) {
		require.NoError(t, r.rq.Destroy())
		require.NoError(t, r.sq.Destroy())
		r.strict = true
		r.rq, r.sq = r.pair()
		r.read(1)
		r.until("it connects", func() bool { r.pollReader(); r.pollSource(); return r.ended == r.posted })
		release := soft.HoldCopy(r.sq)
		r.read(1 << 20)
		require.NoError(t, r.smr.Dereg())
		r.until("its half has failed", func() bool { r.pollReader(); return r.rq.State() == verbs.QPSErr })
		for range 100 {
			r.pollReader()
		}
		require.Less(t, r.ended, r.posted)
		require.ErrorIs(t, r.rmr[r.ended].Dereg(), syscall.EBUSY)
		release()
		r.until("it is flushed", func() bool { r.pollReader(); return r.ended == r.posted })
		require.Equal(t, verbs.WCRemAccessErr, r.lastStatus)
		require.NoError(t, r.rmr[r.ended-1].Dereg())
	})
}

// TestDestroyInACopy: a queue pair is destroyed though its peer may still write, and says so.
func TestDestroyInACopy(t *testing.T) {
	testlevel.SkipIfQuick(t) // Destroy looks for two seconds
	r := newShareRig(t, soft.Config{}, 0)
	release := soft.HoldCopy(r.sq)
	defer release()
	r.read(1 << 20)
	err := r.rq.Destroy()
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, "the peer does not run, in the middle of a copy to the buffer of a READ, which it may finish later")
	require.ErrorContains(t, r.rq.Destroy(), "gone already")
	late := r.rmr[len(r.rmr)-1].(verbs.QuietMR)
	require.True(t, late.Kept())
	require.NoError(t, late.Dereg())
}

// TestNoSharesWithoutDirect: a reader that may not be written to reads all by itself.
func TestNoSharesWithoutDirect(t *testing.T) {
	r := newShareRig(t, softtest.WithoutDirect(soft.Config{}), 0)
	for range 8 {
		r.read(100 << 10)
	}
	shares, _ := soft.Waiting(r.rq)
	require.Zero(t, shares)
	r.until("READs end", r.settled)
	require.Zero(t, soft.Pushed(r.reader))
}

// TestPushRefused: what the source cannot write, as the buffer is gone for a while, the reader
// reads, although its own half is not read yet. It goes on to ask for pushes.
func TestPushRefused(t *testing.T) {
	eachReader(t, func(t *testing.T, r *shareRig) {
		dst, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Munmap(dst) })
		r.readTo(dst)
		require.NoError(t, unix.Mprotect(dst, unix.PROT_READ))
		for range 8 {
			r.pollSource()
		}
		require.NoError(t, unix.Mprotect(dst, unix.PROT_READ|unix.PROT_WRITE))
		r.until("it ends", r.settled)
		require.Equal(t, verbs.WCSuccess, r.lastStatus)
		require.Zero(t, soft.Pushed(r.reader))
		r.read(1 << 20)
		shares, _ := soft.Waiting(r.rq)
		require.NotZero(t, shares)
		r.until("that ends", r.settled)
	})
}

// TestExchange: a device with a buffer that peers may read, as that of a rank which sends, copies
// by itself what takes one system call, unless it reads something already.
func TestExchange(t *testing.T) { eachReader(t, exchange) }

func exchange(t *testing.T, r *shareRig) {
	shares := func(n int) int {
		r.read(n)
		shares, _ := soft.Waiting(r.rq)
		return shares
	}
	defer func(s io.Closer) { require.NoError(t, s.Close()) }(must(r.reader.Share(make([]byte, 4096), -1)))
	out := must(r.rpd.RegMR(make([]byte, 8), verbs.AccessRemoteRead))
	require.Zero(t, shares(64<<10))
	require.Equal(t, 1, shares(64<<10), "it reads already")
	r.until("READs end", r.settled)
	require.Zero(t, shares(256<<10))
	r.until("it ends", r.settled)
	require.Equal(t, 1, shares(256<<10+1))
	r.until("it ends", r.settled)
	require.NoError(t, out.Dereg())
	require.Equal(t, 1, shares(64<<10), "memory that is shared is not sent yet")
	r.until("it ends", r.settled)
}

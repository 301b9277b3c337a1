package ibverbs

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// chain is n requests, with their numbers as WRID.
func chain(n int) []verbs.SendWR {
	c := make([]verbs.SendWR, n)
	for i := range c {
		c[i] = verbs.SendWR{WRID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: []verbs.SGE{{Data: []byte{byte(i)}}}}
		if i > 0 {
			c[i-1].Next = &c[i]
		}
	}
	return c
}

func receives(n int) []verbs.RecvWR {
	c := make([]verbs.RecvWR, n)
	for i := range c {
		c[i].WRID = uint64(i)
		if i > 0 {
			c[i-1].Next = &c[i]
		}
	}
	return c
}

// TestChains: of a chain that is refused in the middle, by the provider or before it, what stands
// in front is posted, in as few calls as it takes. At n none is refused.
func TestChains(t *testing.T) {
	r := newRig(t)
	r.connect(r.qp, r.d.Address())
	own, err := r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, Type: verbs.QPTRC, Cap: verbs.QPCap{MaxRecvWR: 256, MaxRecvSGE: 1}})
	require.NoError(t, err)
	require.NoError(t, own.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMaskInit))
	posts := variable[int32](r.provider, "posts")
	ids := variable[[256]uint64](r.provider, "posted")
	refused := variable[uint64](r.provider, "refused")
	defer func() { *refused = ^uint64(0) }()
	for _, n := range []int{1, 33, 64, 65} {
		for _, at := range []int{0, 1, n / 2, 31, 32, 33, 63, 64, n} {
			if at > n {
				continue
			}
			sends, recvs, recvs2 := chain(n), receives(n), receives(n)
			for what, c := range map[string]struct {
				post     func() (int, error) // returns the WRID of the refused one, n for none
				errno    syscall.Errno
				provider bool // is what refuses
			}{
				"send":     {func() (int, error) { return first(n)(r.qp.PostSend(&sends[0])) }, syscall.ENOMEM, true},
				"long":     {func() (int, error) { return r.postLong(n, at) }, syscall.EINVAL, false},
				"too long": {func() (int, error) { return r.postTooLong(n, at) }, syscall.EINVAL, false},
				"srq":      {func() (int, error) { return firstRecv(n)(r.srq.PostSRQRecv(&recvs[0])) }, syscall.ENOMEM, true},
				"recv":     {func() (int, error) { return firstRecv(n)(own.PostRecv(&recvs2[0])) }, syscall.ENOMEM, true},
				"srq long": {func() (int, error) { return r.postLongReceives(n, at) }, syscall.EINVAL, false},
			} {
				*refused, *posts = ^uint64(0), 0
				calls := (at + 31) / 32
				if c.provider {
					*refused = uint64(at)
					calls = min(at/32+1, (n+31)/32)
				}
				name := fmt.Sprintf("%s, %d of %d", what, at, n)
				require.Equal(t, calls, r.calls(func() {
					bad, err := c.post()
					require.Equal(t, at, bad, name)
					if at == n {
						require.NoError(t, err, name)
					} else {
						require.ErrorIs(t, err, c.errno, name)
					}
				}), name)
				require.EqualValues(t, at, *posts, name)
				for i, id := range ids[:at] {
					require.EqualValues(t, i, id, name)
				}
			}
		}
	}
}

func first(n int) func(bad *verbs.SendWR, err error) (int, error) {
	return func(bad *verbs.SendWR, err error) (int, error) {
		if bad == nil {
			return n, err
		}
		return int(bad.WRID), err
	}
}

func firstRecv(n int) func(bad *verbs.RecvWR, err error) (int, error) {
	return func(bad *verbs.RecvWR, err error) (int, error) {
		if bad == nil {
			return n, err
		}
		return int(bad.WRID), err
	}
}

// postLong posts n requests of which one has too much inline payload.
func (r *rig) postLong(n, at int) (int, error) {
	c := chain(n)
	if at < n {
		c[at].SGList[0].Data = make([]byte, r.qp.init.Cap.MaxInlineData+1)
	}
	return first(n)(r.qp.PostSend(&c[0]))
}

// postTooLong posts n requests of which one is longer than the device's longest message, and the
// one before that is as long.
func (r *rig) postTooLong(n, at int) (int, error) {
	defer func(most uint64) { r.d.attr.MaxMsgSize = most }(r.d.attr.MaxMsgSize)
	r.d.attr.MaxMsgSize = 100
	c := chain(n)
	for i := max(at-1, 0); i < min(at+1, n); i++ {
		c[i].Flags, c[i].SGList[0].Data = 0, make([]byte, 101+i-at) // the provider does not look at it
	}
	return first(n)(r.qp.PostSend(&c[0]))
}

// postLongReceives posts n receives of which one has too many entries.
func (r *rig) postLongReceives(n, at int) (int, error) {
	c := receives(n)
	if at < n {
		c[at].SGList = make([]verbs.SGE, 9)
	}
	return firstRecv(n)(r.srq.PostSRQRecv(&c[0]))
}

// taker notes completions, and stops after some.
type taker struct {
	cq   verbs.CQ
	got  []uint64
	stop int
}

func (k *taker) Complete(wc *verbs.WC) bool {
	k.got = append(k.got, wc.WRID)
	if len(k.got) == k.stop {
		k.cq.Stop()
	}
	return false
}

// complete has the provider report completions of queue pairs, by turns, with WRIDs from 0 on.
func (r *rig) complete(n int, qps ...*queuePair) {
	all := variable[[128]abi.WC](r.provider, "completions")
	for i := range n {
		all[i] = abi.WC{WRID: uint64(i), Opcode: uint32(verbs.WCRecv), QPNum: qps[i%len(qps)].num}
	}
	*variable[int32](r.provider, "completed") = int32(n)
}

// TestStopInBatch: what was polled beyond a Stop comes with the next Drain, in order, but for
// completions of a queue pair that was destroyed or reset meanwhile.
func TestStopInBatch(t *testing.T) {
	for _, ends := range []string{"stays", "destroyed", "reset"} {
		for _, stop := range []int{1, 5, 31, 32, 33, 70} {
			t.Run(fmt.Sprint(ends, " after ", stop), func(t *testing.T) {
				r := newRig(t)
				other := r.newQP()
				r.complete(70, r.qp, other)
				k := &taker{cq: r.cq, stop: stop}
				n, err := r.cq.Drain(k, 128)
				require.NoError(t, err)
				require.Equal(t, stop, n)
				polled := min((stop+31)/32*32, 70)
				switch ends {
				case "destroyed":
					require.NoError(t, other.Destroy())
				case "reset":
					require.NoError(t, other.Modify(&verbs.QPAttr{State: verbs.QPSReset}, verbs.QPAttrState))
				}
				k.stop = -1
				var want []uint64
				for i := range uint64(70) {
					if forgotten := int(i) >= stop && int(i) < polled && i%2 == 1; !forgotten || ends == "stays" {
						want = append(want, i)
					}
				}
				for len(k.got) < len(want) {
					n, err := r.cq.Drain(k, 3)
					require.NoError(t, err)
					require.LessOrEqual(t, n, 3)
					require.NotZero(t, n, "%d of %d", len(k.got), len(want))
				}
				require.Equal(t, want, k.got)
				n, err = r.cq.Drain(k, 3)
				require.NoError(t, err)
				require.Zero(t, n)
			})
		}
	}
}

// TestUnknownOpcode: a completion of a kind that nobody knows ends the queue, behind those before
// it.
func TestUnknownOpcode(t *testing.T) {
	r := newRig(t)
	r.complete(10, r.qp)
	variable[[128]abi.WC](r.provider, "completions")[6].Opcode = 99
	k := &taker{cq: r.cq}
	for range 2 {
		_, err := r.cq.Drain(k, 128)
		require.ErrorIs(t, err, syscall.EPROTO)
		require.Len(t, k.got, 6)
	}
}

// TestWaiting: Wake ends a Wait that is under way, or the next one; Close ends it.
func TestWaiting(t *testing.T) {
	r := newRig(t)
	ch, err := r.d.CreateCompChannel()
	require.NoError(t, err)
	waits := make(chan error)
	wait := func() { go func() { waits <- ch.Wait() }() }
	blocks := func() {
		for range 10 { // it may end for nothing, but not for ever
			wait()
			select {
			case err := <-waits:
				require.NoError(t, err)
			case <-time.After(20 * time.Millisecond):
				return
			}
		}
		t.Fatal("no Wait blocks")
	}
	for i := range 20 {
		ch.Wake()
		ch.Wake()
		wait()
		require.NoError(t, <-waits)
		blocks()
		if i%2 == 0 {
			r.d.wake()
		} else {
			ch.Wake()
		}
		require.NoError(t, <-waits)
	}
	blocks()
	require.NoError(t, ch.Close())
	require.ErrorIs(t, <-waits, os.ErrClosed)
	require.ErrorIs(t, ch.Wait(), os.ErrClosed)
	ch.Wake()
	require.ErrorIs(t, ch.Close(), syscall.EINVAL)
}

// TestEnded: the end of a line, which PollTold reports, ends the queue pairs that are connected to
// the device at its other end, and no others.
func TestEnded(t *testing.T) {
	r := newRig(t)
	peer, third := r.device(), r.device()
	other := r.newQP()
	r.connect(r.qp, peer.Address())
	r.connect(other, third.Address())
	told := func(d *device) (msg verbs.Told) {
		require.Eventually(t, func() bool {
			for _, d := range []*device{r.d, peer, third} {
				if !d.closed {
					require.NoError(t, d.lines.poll())
				}
			}
			m, ok := d.PollTold()
			msg = m
			return ok
		}, testlevel.Patience(20*time.Second), time.Millisecond)
		return msg
	}
	require.NoError(t, peer.Tell(r.d.Address(), []byte("hello")))
	require.Equal(t, []byte("hello"), told(r.d).Msg)
	require.Equal(t, verbs.QPSRTS, r.qp.State())
	require.NoError(t, peer.Close())
	end := told(r.d)
	require.Nil(t, end.Msg)
	require.True(t, bytes.Equal(peer.Address(), end.From))
	require.Equal(t, verbs.QPSErr, r.qp.State())
	require.Equal(t, verbs.QPSRTS, other.State())
	modified := *variable[int32](r.provider, "modified")
	require.EqualValues(t, verbs.QPSErr, variable[[16]int32](r.provider, "states_set")[(modified-1)%16], "C has been told")
	ev, ok := r.d.PollAsync()
	require.True(t, ok)
	require.Equal(t, verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: r.qp.Num(), Err: end.Err}, ev)
	_, ok = r.d.PollAsync()
	require.False(t, ok)
	require.NoError(t, third.Close())
	_, ok = third.PollAsync()
	require.False(t, ok, "that it was closed is no fault")
}

// TestLeavesNothing: a device that is closed leaves no descriptor.
func TestLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.close()
	before := descriptors(t)
	r = newRig(t)
	require.Greater(t, len(descriptors(t)), len(before))
	r.close()
	require.ElementsMatch(t, before, descriptors(t))
}

// TestNoAllocations: neither posts nor polls allocate.
func TestNoAllocations(t *testing.T) {
	r := newRig(t)
	r.connect(r.qp, r.d.Address())
	sends, recvs := chain(40), receives(40)
	k := &taker{cq: r.cq, got: make([]uint64, 0, 1<<16)}
	r.complete(40, r.qp)
	all, completed := variable[[128]abi.WC](r.provider, "completions"), variable[int32](r.provider, "completed")
	filled := *all
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, err := r.qp.PostSend(&sends[0])
		require.NoError(t, err)
		_, err = r.srq.PostSRQRecv(&recvs[0])
		require.NoError(t, err)
		*all, *completed = filled, 40
		_, err = r.cq.Drain(k, 64)
		require.NoError(t, err)
		require.NoError(t, r.cq.Arm(false))
	}))
	require.Len(t, k.got, 40*101)
}

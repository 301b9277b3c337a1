package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// rig is two devices on a fabric with one connection, each with one CQ.
type rig struct {
	d  [2]*Device
	cq [2]verbs.CQ
	q  [2]verbs.QP
}

func newRig(t *testing.T, f *Fabric) *rig { return newHabitRig(t, f, nil) }

func newHabitRig(t *testing.T, f *Fabric, h *hook.Habits) *rig {
	r := &rig{}
	var pd [2]verbs.PD
	for i := range r.d {
		var err error
		r.d[i], err = Open(Config{Fabric: f, Rank: i, habits: h})
		require.NoError(t, err)
		pd[i], _ = r.d[i].AllocPD()
		r.cq[i], _ = r.d[i].CreateCQ(verbs.CQInitAttr{CQE: 64})
		init := &verbs.QPInitAttr{SendCQ: r.cq[i], RecvCQ: r.cq[i], Type: verbs.QPTRC, Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16}}
		r.q[i], err = pd[i].CreateQP(init)
		require.NoError(t, err)
	}
	for i := range r.d {
		RaiseQP(t, r.q[i], r.d[1-i], r.q[1-i].Num(), 3)
	}
	t.Cleanup(func() {
		for i := range r.d {
			for _, f := range []func() error{r.q[i].Destroy, r.cq[i].Destroy, pd[i].Dealloc, r.d[i].Close} {
				require.NoError(t, f())
			}
		}
	})
	return r
}

func (r *rig) post(t *testing.T, i int, wrid uint64) {
	t.Helper()
	_, err := r.q[i].PostSend(&verbs.SendWR{WRID: wrid, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	require.NoError(t, err)
}

// recv posts a receive of device 1.
func (r *rig) recv(t *testing.T, wrid uint64) {
	t.Helper()
	_, err := r.q[1].PostRecv(&verbs.RecvWR{WRID: wrid})
	require.NoError(t, err)
}

// poll polls device i once.
func (r *rig) poll(t *testing.T, i int) []verbs.WC {
	t.Helper()
	wc := make([]verbs.WC, 8)
	n, err := verbstest.Poll(r.cq[i], wc)
	require.NoError(t, err)
	return wc[:n]
}

func TestFabricFaults(t *testing.T) {
	for name, fault := range map[string]func(f *Fabric, r *rig){
		"break": func(f *Fabric, r *rig) { loop.Break(f, r.d[0].self.ID, r.d[1].self.ID) },
		"kill":  func(f *Fabric, r *rig) { loop.Kill(f, r.d[1].self.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFabric()
			r := newRig(t, f)
			r.post(t, 0, 1)
			r.post(t, 0, 2)
			fault(f, r)
			got := append(r.poll(t, 0), r.poll(t, 0)...)
			if len(got) != 2 || got[0].Status != verbs.WCRetryExcErr || got[1].Status != verbs.WCWRFlushErr {
				t.Fatalf("%+v", got)
			}
			ev, ok := r.d[0].PollAsync()
			if !ok || ev.Type != verbs.EventQPFatal || ev.Err == nil || ev.QP != r.q[0].Num() {
				t.Errorf("%+v", ev)
			}
		})
	}
}

// TestVirtualClock: with a clock that stands still an RNR budget does not run out; it runs out
// exactly when it should.
func TestVirtualClock(t *testing.T) {
	f := loop.NewFabric(loop.Options{Step: 1})
	r := newRig(t, f)
	r.post(t, 0, 1)
	for range 1000 {
		if n := len(r.poll(t, 0)) + len(r.poll(t, 1)); n != 0 {
			t.Fatal("the budget ran out too early")
		}
	}
	loop.Advance(f, 3*1280*time.Microsecond) // three retries of code 14
	r.poll(t, 1)
	if got := r.poll(t, 0); len(got) != 1 || got[0].Status != verbs.WCRNRRetryExcErr {
		t.Fatalf("%+v", got)
	}
}

// TestFabricReplay: the same seed gives the same history.
func TestFabricReplay(t *testing.T) {
	history := func(seed uint64) (s string) {
		r := newRig(t, loop.NewFabric(loop.Options{Seed: seed, MaxDelay: 4, MaxBurst: 2, MaxRefuse: 3, Queue: 4, Step: 1}))
		for k := range uint64(16) {
			r.recv(t, 100+k)
			r.post(t, 0, k)
		}
		for step := range 300 {
			for i := range r.d {
				for _, w := range r.poll(t, i) {
					s += fmt.Sprintf("%d:%d:%d ", step, i, w.WRID)
				}
			}
		}
		return s
	}
	first := history(7)
	if again := history(7); again != first {
		t.Errorf("seed 7 gave\n%s\nand then\n%s", first, again)
	}
	if history(8) == first {
		t.Error("another seed gives the same history")
	}
}

// TestStep: a device runs ahead of its program, and a program that polls does not make it receive.
func TestStep(t *testing.T) {
	r := newRig(t, loop.NewFabric(loop.Options{Stepped: true}))
	for k := range uint64(2) {
		r.recv(t, 100+k)
		r.post(t, 0, k)
	}
	for range 3 {
		if n := len(r.poll(t, 0)) + len(r.poll(t, 1)); n != 0 {
			t.Fatal("received without a step")
		}
	}
	r.d[1].step()
	if n := len(r.poll(t, 0)); n != 0 {
		t.Fatal("the sender received an acknowledgement without a step")
	}
	if got := r.poll(t, 1); len(got) != 2 || got[0].WRID != 100 || got[1].WRID != 101 {
		t.Fatalf("%+v", got)
	}
	r.d[0].step()
	if got := r.poll(t, 0); len(got) != 2 || got[0].WRID != 0 || got[1].WRID != 1 {
		t.Fatalf("%+v", got)
	}
}

// TestReceivesInErrorAreFlushed: a queue pair in error completes each receive that it takes, also
// where one behind it in the chain is refused.
func TestReceivesInErrorAreFlushed(t *testing.T) {
	r := newRig(t, NewFabric())
	require.NoError(t, r.q[1].Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	for _, next := range []*verbs.RecvWR{nil, {SGList: make([]verbs.SGE, 100)}} {
		bad, err := r.q[1].PostRecv(&verbs.RecvWR{WRID: 7, Next: next})
		require.Equal(t, next != nil, err != nil)
		require.Same(t, next, bad)
		got := r.poll(t, 1)
		require.Len(t, got, 1)
		require.Equal(t, verbs.WCWRFlushErr, got[0].Status)
	}
}

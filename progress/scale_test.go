package progress

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/transport"
)

// What one event costs does not grow with what is outstanding. Each of these tests takes well under
// a second, and takes minutes where each event walks through all that is outstanding.

// processorTime is what this process has used, which other processes have no part in.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// inReasonableTime does something n times.
func inReasonableTime(t *testing.T, n int, each func(i int)) {
	t.Helper()
	start := processorTime(t)
	for i := range n {
		each(i)
		if i%1000 == 999 {
			require.Less(t, processorTime(t)-start, 20*time.Second, "after %d of %d", i, n)
		}
	}
}

// outstanding is less where each check of the lists walks through them, and below level ci.
func outstanding() int {
	if invariant.Enabled || !testlevel.CI() {
		return 10000
	}
	return 100000
}

// Sends withdraw their messages, which wait at the receiver or are being read there.
func TestScaleWithdraw(t *testing.T) {
	for _, reading := range []bool{false, true} {
		t.Run(fmt.Sprintf("reading=%v", reading), func(t *testing.T) {
			c := newCluster(t, 2, Config{Manual: true, UnexpectedLimit: 1 << 30}, fakeOpts{revoke: reading})
			sends, recvs := make([]Request, outstanding()), []Request{}
			msg, buf := make([]byte, 1000), make([]byte, 1000)
			for i := range sends {
				sends[i] = c.e[0].Isend(1, uint64(i%2*i), msg) // half of them with one tag
			}
			c.step()
			require.Equal(t, len(sends), c.e[1].Metrics().UnexpectedNow)
			c.net.nodes[1].holdRds = true
			for i := range sends {
				if reading {
					recvs = append(recvs, c.e[1].Irecv(0, uint64(i%2*i), exact, buf))
				}
			}
			require.Equal(t, len(recvs), c.e[1].Metrics().ReadsNow)
			inReasonableTime(t, len(sends), func(i int) {
				sends[i].Cancel()
				if i%1000 == 999 {
					c.step()
				}
			})
			canceled(t, sends...)
			c.net.nodes[1].holdRds = false
			c.step()
			open(t, recvs...)
			for _, r := range recvs {
				r.Cancel()
			}
			c.quiet()
		})
	}
}

// Rank 1 tells again and again that it is held up, and that it is no more, while rank 0 has
// receives of rank 2.
func TestScaleHeld(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	for i := range outstanding() {
		c.e[0].Irecv(2, uint64(i), exact, nil)
	}
	inReasonableTime(t, outstanding(), func(i int) {
		c.callback(0, func(s transport.Sink) {
			for k := range uint32(2) {
				h := ctrl{kind: ctrlHeld, id: uint32(i)*2 + 1 + k, body: encodeHeld(flow.Held{Allowed: 1 << 60})}
				s.Ctrl(1, h.encode())
			}
		})
		c.net.nodes[1].in[0] = nil // rank 1 knows nothing of it
	})
	c.net.kill(2)
	c.step()
}

// Requests are found by their names among all that came before the first was withdrawn, and after.
func TestWithdrawByName(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c := manual(t, 3, fakeOpts{revoke: true, tags: tags, software: true})
		send := func(from int, tag uint64) Request {
			r := c.e[from].Isend(2, tag, fill(1000, byte(tag)))
			c.step()
			return r
		}
		first, second, other := send(0, 1), send(0, 2), send(1, 1)
		first.Cancel()
		c.step()
		canceled(t, first)

		third := send(0, 3)
		c.net.nodes[2].holdRds = true
		r := c.e[2].Irecv(0, 2, exact, make([]byte, 1000)) // it reads
		for _, s := range []Request{second, third} {
			s.Cancel()
		}
		c.step()
		canceled(t, second, third)
		open(t, r)

		r4 := c.e[2].Irecv(0, 4, exact, make([]byte, 1000)) // it reads, and began after the first was withdrawn
		fourth := send(0, 4)
		fourth.Cancel()
		c.step()
		canceled(t, fourth)
		c.net.nodes[2].holdRds = false
		c.step()
		open(t, r, r4)
		r.Cancel()
		r4.Cancel()
		open(t, other) // rank 1 calls its request as rank 0 its first
		require.Empty(t, c.e[2].reads.by)
		other.Cancel()
		c.step()
		canceled(t, other)
		c.quiet()
	}
}

// A peer that is held up is told of those receives that it can satisfy, and of all of them.
func TestHeldAmongOthers(t *testing.T) {
	c := manual(t, 3, fakeOpts{})
	var reqs []Request
	for tag, src := range []int{2, 1, 2, AnySource, 1, 2, AnySource, 2, 1} {
		reqs = append(reqs, c.e[0].Irecv(src, uint64(tag), exact, nil))
	}
	require.NoError(t, c.e[1].Send(bg, 0, 1, nil)) // one of each kind does not wait any more
	reqs[3].Cancel()
	c.step()
	log := c.watch(1)
	heldUp := func() []uint64 {
		c.callback(0, func(s transport.Sink) {
			s.Ctrl(1, ctrl{kind: ctrlHeld, id: 1, body: encodeHeld(flow.Held{Allowed: 1 << 60})}.encode())
		})
		c.step()
		return wantsSent(log)
	}
	require.Equal(t, []uint64{4, 6, 8}, heldUp())
	reqs[6].Cancel()
	reqs[8].Cancel()
	require.Equal(t, []uint64{4}, heldUp())
	c.net.kill(1)
	c.step() // any source goes with it
	require.Zero(t, c.e[0].fromAny)
	for rank, from := range []int{0, 0, 4} {
		require.Equal(t, from, c.e[0].peers[rank].from, "rank %d", rank)
	}
}

// deregistered tells in which order sends end.
type deregistered struct {
	fakeRegion
	tag   byte
	order *[]byte
}

func (r *deregistered) Dereg() error {
	*r.order = append(*r.order, r.tag)
	return nil
}

type registering struct {
	*fakeNode
	order []byte
}

func (n *registering) Register(_ int, buf []byte) (transport.Region, error) {
	return &deregistered{tag: buf[0], order: &n.order}, nil
}

// When everything ends, the rendezvous sends to all peers end in one pass through their table: in
// its order, whoever they go to.
func TestSendsEndInOnePass(t *testing.T) {
	n := &registering{fakeNode: newFakeNet(3, fakeOpts{}).nodes[0]}
	e, err := New(Config{Size: 3, Manual: true, seed: 1}, func(s transport.Sink) (transport.Transport, error) {
		n.sink = s
		return n, nil
	})
	require.NoError(t, err)
	for rank := range 3 {
		require.NoError(t, e.Connect(rank, e.Address()))
		n.meet(e, rank)
	}
	var reqs []Request
	for i, dst := range []int{2, 1, 2, 1, 2} {
		buf := make([]byte, 1000)
		buf[0] = byte(i)
		reqs = append(reqs, e.Isend(dst, 1, buf))
	}
	require.NoError(t, e.Close(nil))
	require.Equal(t, []byte{0, 1, 2, 3, 4}, n.order)
	for _, r := range reqs {
		_, err := ended(t, r)
		require.Equal(t, ErrClosed, err)
	}
}

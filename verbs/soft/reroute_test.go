//go:build linux

package soft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// rerouteEnd is a device with a queue pair to another one. A test drives both from one goroutine.
type rerouteEnd struct {
	d    *Device
	pd   verbs.PD
	cq   verbs.CQ
	qp   verbs.QP
	got  []uint32
	logs bytes.Buffer
}

// newRerouteEnd opens a device; faults change how it makes connections over shared memory.
func newRerouteEnd(t *testing.T, rank int, wires []string, faults ...func(*dial.Config)) *rerouteEnd {
	e := &rerouteEnd{}
	cfg := Config{faults: func(c *dial.Config) {
		for _, f := range faults {
			f(c)
		}
	}, Wires: wires, Secret: []byte("secret"), Rank: rank, RingBytes: 8192,
		Logger: slog.New(slog.NewTextHandler(&e.logs, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	var err error
	e.d, err = Open(cfg)
	require.NoError(t, err)
	e.pd, err = e.d.AllocPD()
	require.NoError(t, err)
	e.cq, err = e.d.CreateCQ(verbs.CQInitAttr{CQE: 128})
	require.NoError(t, err)
	e.qp, err = e.pd.CreateQP(&verbs.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 32, MaxRecvWR: 32}})
	require.NoError(t, err)
	return e
}

// raise connects the queue pair to o's.
func (e *rerouteEnd) raise(t *testing.T, o *rerouteEnd) {
	RaiseQP(t, e.qp, o.d, o.qp.Num(), 7)
	for range 32 {
		_, err := e.qp.PostRecv(&verbs.RecvWR{})
		require.NoError(t, err)
	}
}

const rerouteMessages = 20

func (e *rerouteEnd) send(t *testing.T) {
	for i := range uint32(rerouteMessages) {
		_, err := e.qp.PostSend(&verbs.SendWR{Opcode: verbs.WRSendWithImm, Imm: i})
		require.NoError(t, err)
	}
}

func (e *rerouteEnd) poll(t *testing.T) {
	var wc [16]verbs.WC
	n, err := verbstest.Poll(e.cq, wc[:])
	require.NoError(t, err)
	for _, c := range wc[:n] {
		require.Equal(t, verbs.WCSuccess, c.Status, "%v", e.d.events)
		if c.Opcode == verbs.WCRecv {
			require.EqualValues(t, len(e.got), c.Imm, "in order, each once")
			e.got = append(e.got, c.Imm)
		}
	}
}

func (e *rerouteEnd) wire() string {
	attr, _, _ := e.qp.Query()
	return attr.AV.Wire
}

func (e *rerouteEnd) close(t *testing.T) {
	for _, f := range []func() error{e.qp.Destroy, e.cq.Destroy, e.pd.Dealloc, e.d.Close} {
		require.NoError(t, f())
	}
}

var errSabotage = errors.New("no shared memory today")

// The ways in which an end's upgrade fails.
var sabotages = map[string]func(*dial.Config){
	"at once": func(c *dial.Config) {
		c.Upgrade = func(_ net.Conn, prepared any) (any, error) { return prepared, errSabotage }
	},
	"late": func(c *dial.Config) { // when the peer waits
		c.Upgrade = func(conn net.Conn, prepared any) (any, error) {
			_ = conn.SetReadDeadline(time.Now().Add(rand.N(10 * time.Millisecond)))
			_, _ = io.ReadFull(conn, make([]byte, 1+rand.IntN(64)))
			return prepared, errSabotage
		}
	},
	"last": func(c *dial.Config) { // instead of its last word, when the peer has sent its own, or nearly so
		upgrade := c.Upgrade
		c.Upgrade = func(conn net.Conn, prepared any) (any, error) {
			return upgrade(&speechless{conn.(*net.UnixConn)}, prepared)
		}
	},
}

// speechless is a connection that fails to send the last word of an upgrade, its only byte alone.
type speechless struct{ *net.UnixConn }

func (s *speechless) Write(b []byte) (int, error) {
	if len(b) > 1 {
		return s.UnixConn.Write(b)
	}
	time.Sleep(rand.N(time.Millisecond))
	return 0, errSabotage
}

// TestReroute has shared memory fail at one end or at both, at any stage, with either end or both
// at once connecting: all messages take TCP, in order, and both ends say so.
func TestReroute(t *testing.T) {
	defer goleak.VerifyNone(t)
	rounds := 12
	switch {
	case testlevel.Quick():
		rounds = 1
	case !testlevel.CI():
		rounds = 3
	}
	for name, fault := range sabotages {
		for failing := 1; failing <= 3; failing++ { // a bit for each end
			for sending := 1; sending <= 3; sending++ {
				t.Run(fmt.Sprintf("%s %02b %02b", name, failing, sending), func(t *testing.T) {
					for range rounds {
						rerouteOnce(t, fault, failing, sending)
					}
				})
			}
		}
	}
}

func rerouteOnce(t *testing.T, fault func(*dial.Config), failing, sending int) {
	faults := map[bool][]func(*dial.Config){true: {fault}}
	ends := []*rerouteEnd{newRerouteEnd(t, 0, nil, faults[failing&1 != 0]...),
		newRerouteEnd(t, 1, nil, faults[failing&2 != 0]...)}
	first := rand.IntN(2)
	late := ends[1-first]
	ends[first].raise(t, late)
	raised := rand.IntN(2) == 0 // else it is only when the other end may have moved over
	if raised {
		late.raise(t, ends[first])
	}
	want := 0
	for i, e := range ends {
		if sending>>i&1 != 0 && (raised || i == first) {
			e.send(t)
		}
		want += sending >> i & 1 * rerouteMessages
	}
	for polls, start := 0, time.Now(); len(ends[0].got)+len(ends[1].got) < want; polls++ {
		if polls == 200 && !raised {
			late.raise(t, ends[first])
			if sending>>(1-first)&1 != 0 {
				late.send(t)
			}
		}
		ends[0].poll(t)
		ends[1].poll(t)
		sched(polls)
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "got %v and %v; %s%s", ends[0].got, ends[1].got, &ends[0].logs, &ends[1].logs)
	}
	for _, e := range ends {
		require.Equal(t, WireTCP, e.wire())
		require.Equal(t, 1, strings.Count(e.logs.String(), "does not work"), "%s", &e.logs)
		e.close(t)
	}
}

// TestAloneIsNotRerouted: where there is no other wire, the failure of shared memory is the link's.
func TestAloneIsNotRerouted(t *testing.T) {
	a := newRerouteEnd(t, 0, []string{WireSHM}, sabotages["at once"])
	b := newRerouteEnd(t, 1, []string{WireSHM})
	a.raise(t, b)
	b.raise(t, a)
	a.send(t)
	for start := time.Now(); a.qp.State() != verbs.QPSErr; time.Sleep(100 * time.Microsecond) {
		var wc [32]verbs.WC
		_, err := verbstest.Poll(a.cq, wc[:])
		require.NoError(t, err)
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second))
	}
	var said string
	for _, ev := range a.d.events {
		if ev.Err != nil {
			said += ev.Err.Error()
		}
	}
	require.Contains(t, said, errSabotage.Error())
	a.close(t)
	b.close(t)
}

// TestRerouteCrossing: one end may not dial, so it leaves shared memory, while the other one dials
// it. Whichever comes first, both ends use the same wire.
func TestRerouteCrossing(t *testing.T) {
	defer goleak.VerifyNone(t)
	wires := map[string]int{}
	for range 100 {
		a := newRerouteEnd(t, 0, nil, func(c *dial.Config) {
			c.Dial = func(context.Context, *wire.Address) (net.Conn, error) {
				return nil, dial.Refuse(dial.RejectYielded, "this process may not connect")
			}
		})
		b := newRerouteEnd(t, 1, nil)
		a.raise(t, b)
		b.raise(t, a)
		b.send(t)
		for range rand.IntN(300) {
			b.poll(t)
		}
		a.send(t)
		for start := time.Now(); len(a.got)+len(b.got) < 2*rerouteMessages; time.Sleep(100 * time.Microsecond) {
			a.poll(t)
			b.poll(t)
			require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "got %v and %v; %s%s", a.got, b.got, &a.logs, &b.logs)
		}
		require.Equal(t, a.wire(), b.wire())
		wires[a.wire()]++
		a.close(t)
		b.close(t)
	}
	t.Log(wires)
}

// TestRerouteShortage has one end lack something for the connection over shared memory when either
// end asks for it. What the kernel refuses sends both to TCP at once; a shortage does so when it
// stays, and not when it passes.
func TestRerouteShortage(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, c := range []struct {
		err      syscall.Errno
		times    int64
		patience time.Duration
		wire     string
	}{
		{syscall.EPERM, 1 << 40, time.Hour, WireTCP},
		{syscall.EMFILE, 3, time.Hour, WireSHM},
		{syscall.ENOMEM, 1 << 40, time.Second, WireTCP},
	} {
		for lacking := range 2 {
			for asking := range 2 {
				t.Run(fmt.Sprintf("%v %d %d %d", c.err, c.times, lacking, asking), func(t *testing.T) {
					var ends []*rerouteEnd
					tries := new(atomic.Int64)
					for i := range 2 {
						ends = append(ends, newRerouteEnd(t, i, nil, func(cfg *dial.Config) {
							cfg.Retry = c.patience
							if i == lacking {
								lack(cfg, c.times, c.err, tries)
							}
						}))
					}
					requireShortage(t, ends[asking], ends[1-asking], c.wire)
					if c.err == syscall.EPERM {
						require.EqualValues(t, 1, tries.Load())
					} else {
						require.Greater(t, tries.Load(), int64(1), "it was not tried again")
					}
				})
			}
		}
	}
}

// requireShortage sends from one end, which alone asks for a connection until the other one answers
// over it, and back.
func requireShortage(t *testing.T, from, to *rerouteEnd, wire string) {
	from.raise(t, to)
	from.send(t)
	start := time.Now()
	for ; !from.connected(); time.Sleep(100 * time.Microsecond) {
		from.poll(t)
		to.poll(t)
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "%s%s", &from.logs, &to.logs)
	}
	to.raise(t, from)
	to.send(t)
	for ; len(from.got)+len(to.got) < 2*rerouteMessages; time.Sleep(100 * time.Microsecond) {
		from.poll(t)
		to.poll(t)
		require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "%s%s", &from.logs, &to.logs)
	}
	require.Equal(t, []string{wire, wire}, []string{from.wire(), to.wire()})
	from.close(t)
	to.close(t)
}

// connected reports whether the link has come up: it has taken the first packet.
func (e *rerouteEnd) connected() bool { return e.qp.(*queuePair).sent != 0 }

// lack makes the first preparations of a connection fail.
func lack(c *dial.Config, times int64, err error, tries *atomic.Int64) {
	prepare := c.Prepare
	c.Prepare = func(conn net.Conn, peer *wire.Address) (any, error) {
		if tries.Add(1) <= times {
			return nil, err
		}
		return prepare(conn, peer)
	}
}

// sched lets another thread run after one of many polls; with one processor of Go it is the
// goroutines that connect, and at times the runtime, which looks at the sockets that they wait for.
func sched(polls int) {
	switch {
	case runtime.GOMAXPROCS(0) > 1:
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	case polls%32 == 31:
		time.Sleep(time.Microsecond)
	default:
		runtime.Gosched()
	}
}

// TestLineRerouted: what two devices tell each other before shared memory has turned out not to
// work takes TCP, all of it and in order, whichever end fails.
func TestLineRerouted(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, fault := range sabotages {
		for failing := 1; failing <= 3; failing++ { // a bit for each end
			t.Run(fmt.Sprintf("%s %02b", name, failing), func(t *testing.T) {
				faults := map[bool][]func(*dial.Config){true: {fault}}
				ends := []*rerouteEnd{newRerouteEnd(t, 0, nil, faults[failing&1 != 0]...),
					newRerouteEnd(t, 1, nil, faults[failing&2 != 0]...)}
				const messages = mostWaiting
				for i, e := range ends {
					for k := range byte(messages) {
						require.NoError(t, e.d.Tell(ends[1-i].d.Address(), []byte{k}))
					}
				}
				var got [2]int
				start := time.Now()
				for polls := 0; got[0]+got[1] < 2*messages; polls++ {
					for i, e := range ends {
						e.poll(t)
						for told, ok := e.d.PollTold(); ok; told, ok = e.d.PollTold() {
							require.Equal(t, verbs.Told{From: ends[1-i].d.Address(), Msg: []byte{byte(got[i])}}, told)
							got[i]++
						}
					}
					sched(polls)
					require.Less(t, time.Since(start), testlevel.Patience(20*time.Second), "%v; %s%s", got, &ends[0].logs, &ends[1].logs)
				}
				for i, e := range ends {
					name, err := e.d.Reaches(ends[1-i].d.Address())
					require.NoError(t, err)
					require.Equal(t, WireTCP, name)
					e.close(t)
				}
			})
		}
	}
}

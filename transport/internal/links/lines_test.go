package links

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// lineDevice is a device whose lines a test holds in its hands.
type lineDevice struct {
	verbs.Device
	told      []verbs.Told // to be polled
	said      []any        // what was told, decoded, in order
	onTell    func(m any)
	full      bool // there is no room to tell
	short     bool // no memory can be registered
	pairs     int  // queue pairs made
	destroyed int  // and destroyed
}

func (d *lineDevice) Reaches([]byte) (string, error) { return "line", nil }

func (d *lineDevice) Tell(_, msg []byte) error {
	if d.full {
		return &verbs.Error{Op: "tell", Errno: syscall.ENOBUFS}
	}
	m, err := format.DecodeTold(msg)
	d.said = append(d.said, m)
	d.onTell(m)
	return err
}

func (d *lineDevice) PollTold() (t verbs.Told, ok bool) {
	if ok = len(d.told) > 0; ok {
		t, d.told = d.told[0], d.told[1:]
	}
	return t, ok
}

func (d *lineDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return &linePD{pd, d}, err
}

type linePD struct {
	verbs.PD
	d *lineDevice
}

func (p *linePD) RegMR(buf []byte, access verbs.AccessFlags) (verbs.MR, error) {
	if p.d.short {
		return nil, &verbs.Error{Op: "reg_mr", Errno: syscall.ENOMEM}
	}
	return p.PD.RegMR(buf, access)
}

func (p *linePD) CreateQP(attr *verbs.QPInitAttr) (verbs.QP, error) {
	p.d.pairs++
	qp, err := p.PD.CreateQP(attr)
	return &lineQP{qp, p.d}, err
}

type lineQP struct {
	verbs.QP
	d *lineDevice
}

func (q *lineQP) Destroy() error {
	q.d.destroyed++
	return q.QP.Destroy()
}

// lineRig is rank 0 of a job whose other ranks are the test.
type lineRig struct {
	*endpoint
	t    *testing.T
	d    *lineDevice
	sink *endSink
	at   [][]byte // device addresses
	log  bytes.Buffer
}

// newLineRig opens rank 0. Its device reaches that of rank 1, and no other.
func newLineRig(t *testing.T, ranks int, left ...verbs.Told) *lineRig {
	fabric := soft.NewFabric()
	open := func(rank int) *soft.Device {
		dev, err := soft.Open(soft.Config{Fabric: fabric, Rank: rank})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.Close()) })
		return dev
	}
	r := &lineRig{endpoint: &endpoint{}, t: t, d: &lineDevice{Device: open(0), told: left}, sink: &endSink{}}
	c := Config{Mode: "test", Device: r.d, Size: ranks, Logger: slog.New(slog.NewTextHandler(&r.log, nil))}
	require.NoError(t, c.Fill())
	sink, inv := check.New(r.sink, r.d, ranks)
	require.NoError(t, Open(&r.Links, c, sink, inv))
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	r.d.onTell = func(m any) {
		if _, ok := m.(*format.Ready); ok {
			require.Equal(t, verbs.QPSRTS, r.peers[1].qp.State(), "READY says that messages are taken")
		}
	}
	other := open(1)
	for rank := range ranks {
		a := c.address()
		a.Rank = rank
		switch rank {
		case 0:
		case 1:
			a.Device = other.Address()
		default:
			a.Device = fmt.Append(nil, "device of rank ", rank)
		}
		r.at = append(r.at, a.Device)
		require.NoError(t, r.Connect(rank, a.Encode()))
	}
	return r
}

// poll polls, and returns the number of events.
func (r *lineRig) poll() int {
	r.t.Helper()
	defer r.inv.Polls()()
	require.NoError(r.t, r.Begin())
	n, empty := r.Drain(r)
	if !r.EndDue() {
		return n
	}
	n, err := r.End(n, empty)
	require.NoError(r.t, err)
	return n
}

// hears has rank 1 tell something, and polls at once.
func (r *lineRig) hears(messages ...interface{ Encode() []byte }) {
	for _, m := range messages {
		r.d.told = append(r.d.told, verbs.Told{From: r.at[1], Msg: m.Encode()})
	}
	r.until = 0
	r.poll()
}

func (r *lineRig) ends(err error) {
	r.d.told = append(r.d.told, verbs.Told{From: r.at[1], Err: err})
	r.until = 0
	r.poll()
}

func (r *lineRig) hello() *format.Hello {
	return &format.Hello{Rank: 1, Number: 5, MTU: verbs.MTU4096, Target: 1, Initiator: 1, Pairs: []format.Pair{{Num: 3, PSN: 4}}}
}

func (r *lineRig) ready() *format.Ready { return &format.Ready{Number: r.conn.number} }

// reported polls until a loss is reported.
func (r *lineRig) reported() error {
	r.t.Helper()
	for range 3 {
		r.poll()
	}
	require.Equal(r.t, []int{1}, r.sink.lost)
	return r.sink.why[0]
}

// sleeps waits as one does who has nothing to do.
func (r *lineRig) sleeps() {
	r.t.Helper()
	require.NoError(r.t, r.Arm())
	require.Zero(r.t, r.poll())
	late := time.AfterFunc(patience, r.Wake)
	require.NoError(r.t, r.Wait())
	require.True(r.t, late.Stop(), "nothing has woken it")
	r.Disarm()
}

// TestNoRoomToTell: while a device has no room for what is to be told nothing is done before its
// turn, and who sleeps tries again soon.
func TestNoRoomToTell(t *testing.T) {
	r := newLineRig(t, 2)
	r.d.full = true
	require.Equal(t, transport.ErrAgain, r.SendFin(1, 1))
	require.Positive(t, r.poll(), "queue pairs are made")
	for range 3 {
		r.sleeps()
	}
	r.hears(r.hello())
	require.Empty(t, r.d.said)
	require.Equal(t, verbs.QPSInit, r.peers[1].qp.State())
	r.d.full = false
	require.Positive(t, r.poll())
	require.IsType(t, &format.Hello{}, r.d.said[0])
	require.IsType(t, &format.Ready{}, r.d.said[1])
	require.Zero(t, r.poll())
	require.False(t, r.EndDue(), "nothing is due before the peer answers")
	require.Empty(t, r.sink.met)
	require.Equal(t, transport.ErrAgain, r.SendFin(1, 1))
	r.hears(r.ready())
	require.Equal(t, []int{1}, r.sink.met)
	require.NoError(t, r.SendFin(1, 1))

	r.d.full = true
	r.Disconnect(1, errors.New("so it pleases"))
	require.Error(t, r.reported())
	require.Len(t, r.d.said, 2)
	for range 3 {
		r.sleeps()
	}
	r.d.full = false
	r.poll()
	require.Equal(t, &format.End{Reason: "so it pleases"}, r.d.said[2])
	require.False(t, r.EndDue())
}

// TestOneAtATime: at most one connection is made in a poll, and in turn.
func TestOneAtATime(t *testing.T) {
	const ranks = 9
	r := newLineRig(t, ranks)
	for rank := 1; rank < ranks; rank++ {
		require.Equal(t, transport.ErrAgain, r.SendFin(rank, 1))
		require.Equal(t, transport.ErrAgain, r.SendFin(rank, 1))
	}
	for n := 1; n < ranks; n++ {
		require.Positive(t, r.poll())
		require.Equal(t, n, r.d.pairs)
		require.Len(t, r.d.said, n)
	}
	require.Zero(t, r.poll())
}

// TestShortOfMemory: connections for which memory is short hold up none that has its queue pairs:
// what it sends may give memory back.
func TestShortOfMemory(t *testing.T) {
	r := newLineRig(t, 3)
	region, err := r.Register(1, make([]byte, 8))
	require.NoError(t, err)
	require.Equal(t, transport.ErrAgain, r.SendFin(1, 1))
	r.poll()
	r.d.short = true
	require.Equal(t, transport.ErrAgain, r.SendFin(2, 1))
	r.poll()
	r.hears(r.hello())
	r.hears(r.ready())
	require.Equal(t, []int{1}, r.sink.met)
	r.sleeps()
	require.NoError(t, region.Dereg())
	r.d.short = false
	said := len(r.d.said)
	r.poll()
	require.IsType(t, &format.Hello{}, r.d.said[said])
}

// TestUnanswered: for ranks that do not answer a poll does nothing, whatever waits for them.
func TestUnanswered(t *testing.T) {
	const ranks = 5
	r := newLineRig(t, ranks)
	for rank := 1; rank < ranks; rank++ {
		require.Equal(t, transport.ErrAgain, r.SendFin(rank, 1))
		require.NoError(t, r.Grant(rank, 9))
	}
	for range ranks {
		r.poll()
	}
	require.Empty(t, r.conn.unmade)
	require.False(t, r.EndDue())
	r.hears(r.hello())
	r.hears(r.ready())
	require.Equal(t, []int{1}, r.sink.met)
	require.Len(t, r.grants.due, ranks-2, "that to the one that has answered is posted")
	require.False(t, r.EndDue())
}

// TestEndTold: who is told END loses that rank, with the reason, and does not answer.
func TestEndTold(t *testing.T) {
	for _, accuses := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			r := newLineRig(t, 2)
			if begun {
				require.Equal(t, transport.ErrAgain, r.SendFin(1, 1))
				r.poll()
			}
			r.hears(&format.End{Accuses: accuses, Reason: "the reason\n"})
			err := r.reported()
			require.ErrorContains(t, err, `"the reason\n"`)
			require.Equal(t, accuses, errors.Is(err, transport.ErrAccused))
			for _, m := range r.d.said {
				require.IsType(t, &format.Hello{}, m)
			}
			require.Equal(t, err, r.SendFin(1, 1))
		}
	}
}

// TestLineEnds: the end of a line at any time loses its rank, after what came before it. Nothing is
// told there any more, as that would make another line.
func TestLineEnds(t *testing.T) {
	gone := fmt.Errorf("line: %w", verbs.ErrPeerEnded)
	for name, before := range map[string]func(r *lineRig){
		"begun":     func(r *lineRig) { require.Equal(t, transport.ErrAgain, r.SendFin(1, 1)); r.poll() },
		"heard":     func(r *lineRig) { r.hears(r.hello()) },
		"connected": func(r *lineRig) { r.hears(r.hello()); r.hears(r.ready()) },
		"at once":   func(r *lineRig) { r.d.told = []verbs.Told{{From: r.at[1], Msg: r.hello().Encode()}} },
		"refused": func(r *lineRig) {
			r.hears(r.hello())
			r.d.full = true
			r.ProtocolError(1, errors.New("it lies"))
			r.poll()
			r.d.full = false
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newLineRig(t, 2)
			before(r)
			said := len(r.d.said)
			r.ends(gone)
			require.Equal(t, name != "refused", errors.Is(r.reported(), verbs.ErrPeerEnded))
			require.Len(t, r.d.said, said)
			require.Zero(t, r.d.destroyed, "before Close")
			require.Zero(t, r.poll())
			r.hears(r.hello())
			r.poll()
			require.Contains(t, r.d.said[said].(*format.End).Reason, "has given it up")
			require.Len(t, r.sink.lost, 1)
		})
	}
}

// TestMessagesBeforeEnd: what was told before the end of the line counts.
func TestMessagesBeforeEnd(t *testing.T) {
	r := newLineRig(t, 2)
	r.d.told = []verbs.Told{{From: r.at[1], Msg: (&format.End{Reason: "the reason"}).Encode()}, {From: r.at[1], Err: verbs.ErrPeerClosed}}
	r.until = 0
	r.poll()
	require.ErrorContains(t, r.reported(), "the reason")
}

// TestEarlierTransport: what was told to an earlier transport of the device is nothing to this one.
func TestEarlierTransport(t *testing.T) {
	r := newLineRig(t, 2, verbs.Told{From: []byte("a device"), Msg: []byte("a message")}, verbs.Told{From: []byte("a device")})
	require.Empty(t, r.d.told)
}

// TestTwoOnOneDevice: of two ranks with one device the second is refused: nobody can tell which of
// them lies, and the liar would take the place of the other.
func TestTwoOnOneDevice(t *testing.T) {
	r := newLineRig(t, 3)
	for _, ranks := range [][2]int{{1, 2}, {2, 1}, {0, 2}} { // the second has the device of the first
		r.addrs[ranks[1]] = nil
		a := r.self
		a.Rank, a.Device = ranks[1], r.at[ranks[0]]
		require.ErrorContains(t, r.Connect(ranks[1], a.Encode()),
			fmt.Sprintf("connect rank %d: its device is that of rank %d", ranks[1], ranks[0]))
	}
}

// TestIdentityOfAnother: so is a rank whose address has the identity of another's device, and says
// that it is elsewhere.
func TestIdentityOfAnother(t *testing.T) {
	r := newTrio(t, 16)
	a, own := r.a.self, r.a.cfg.Device.Address()
	r.a.addrs[2] = nil
	for rank, addr := range [][]byte{own, r.a.addrs[1]} {
		a.Rank, a.Device = 2, bytes.Clone(addr)
		a.Device[len("TMA1")+16]++ // the host, behind the identity
		require.ErrorContains(t, r.a.Connect(2, a.Encode()), fmt.Sprintf("its device is that of rank %d", rank))
	}
}

// TestReminder: the log says once which rank has not answered, and nothing of those that have, or
// are lost.
func TestReminder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLineRig(t, 4)
		for rank := 1; rank < 4; rank++ {
			require.Equal(t, transport.ErrAgain, r.SendFin(rank, 1))
		}
		for range 3 {
			r.poll()
		}
		r.hears(r.hello())
		r.hears(r.ready())
		r.Disconnect(2, errors.New("gone"))
		due := time.Now().Add(patience)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, bytes.Count(r.log.Bytes(), []byte("\n")), r.log.String())
		require.Contains(t, r.log.String(), "peer=3")
		require.Contains(t, r.log.String(), "time="+due.Format("2006-01-02T15:04:05.000Z07:00"))
	})
}

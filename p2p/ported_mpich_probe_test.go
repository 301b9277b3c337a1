package p2p_test

import (
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHProbe has what MPICH's test/mpi/pt2pt and errors/pt2pt check of probes.
func TestPortedMPICHProbe(t *testing.T) {
	portedRows(t, 4, p2p.Config{},
		portedRow{"isendselfprobe", ranks(isendselfprobe)},
		portedRow{"probe_unexp", onEveryComm(probeUnexp)},
		portedRow{"probenull", ranks(probenull)},
		portedRow{"mprobe", mprobe},
		portedRow{"truncmsg_mrecv", truncmsgMrecv},
		portedRow{"proberank", ranks(proberank)},
	)
}

// TestPortedMPICHThreadsProbe has the family mt_*probe* of MPICH's test/mpi/threads/pt2pt.
func TestPortedMPICHThreadsProbe(t *testing.T) {
	portedRows(t, 2, p2p.Config{},
		portedRow{"mt_probe", ranks(func(t *testing.T, w *p2p.World) { mtProbe(t, w, probe, false) })},
		portedRow{"mt_iprobe", ranks(func(t *testing.T, w *p2p.World) { mtProbe(t, w, iprobe, false) })},
		portedRow{"mt_mprobe", ranks(func(t *testing.T, w *p2p.World) { mtProbe(t, w, mprobeOnce, true) })},
		portedRow{"mt_improbe", ranks(func(t *testing.T, w *p2p.World) { mtProbe(t, w, improbe, true) })},
	)
}

// look is a way to wait for a message: those that do not take it give no Message.
type look func(c *p2p.Comm, src int, tag p2p.Tag) (p2p.Status, *p2p.Message, error)

func probe(c *p2p.Comm, src int, tag p2p.Tag) (p2p.Status, *p2p.Message, error) {
	st, err := c.Probe(background, src, tag)
	return st, nil, err
}

func iprobe(c *p2p.Comm, src int, tag p2p.Tag) (p2p.Status, *p2p.Message, error) {
	for {
		if st, found, err := c.Iprobe(src, tag); found || err != nil {
			return st, nil, err
		}
		runtime.Gosched() // there may be one processor for all ranks
	}
}

func mprobeOnce(c *p2p.Comm, src int, tag p2p.Tag) (p2p.Status, *p2p.Message, error) {
	m, err := c.Mprobe(background, src, tag)
	if err != nil {
		return p2p.Status{}, nil, err
	}
	return m.Status(), m, nil
}

func improbe(c *p2p.Comm, src int, tag p2p.Tag) (p2p.Status, *p2p.Message, error) {
	for {
		if m, found, err := c.Improbe(src, tag); err != nil {
			return p2p.Status{}, nil, err
		} else if found {
			return m.Status(), m, nil
		}
		runtime.Gosched()
	}
}

// receive is a way to receive a message that a matched probe has taken.
type receive func(m *p2p.Message, buf []byte) (p2p.Status, error)

func mrecv(m *p2p.Message, buf []byte) (p2p.Status, error) { return m.Recv(background, buf) }

func imrecv(m *p2p.Message, buf []byte) (p2p.Status, error) { return m.Irecv(buf).Wait(background) }

// isendselfprobe: a probe finds what the rank has sent to itself.
func isendselfprobe(t *testing.T, w *p2p.World) {
	c, message, buf := w.Comm(), pattern(4, w.Rank()), fresh(4)
	s := c.Isend(w.Rank(), 0, message)
	st, _, err := iprobe(c, w.Rank(), 0)
	require.NoError(t, err)
	require.Equal(t, p2p.Status{Source: w.Rank(), Tag: 0, Len: 4}, st)
	st, err = c.Recv(background, w.Rank(), 0, buf)
	require.NoError(t, err)
	requireReceived(t, message, buf, st, w.Rank(), 0)
	wait(t, s)
}

// probeUnexp (probe_unexp): a probe for anything, which mostly waits already when the message
// comes, tells source, tag and length, of up to 4 MiB; then Recv gets that message.
func probeUnexp(t *testing.T, c *p2p.Comm) {
	step := 2
	if !testlevel.CI() {
		step = 6
	}
	for lg := 0; lg <= 22; lg += step {
		size := 1 << lg
		for i := range 2 {
			tag := p2p.Tag(2*lg + i)
			if c.Rank() == 0 {
				for range c.Size() - 1 {
					st, err := c.Recv(background, p2p.AnySource, tag, nil)
					require.NoError(t, err)
					require.NoError(t, c.Send(background, st.Source, tag, pattern(size, i)))
				}
				continue
			}
			require.NoError(t, c.Send(background, 0, tag, nil))
			find := []look{probe, mprobeOnce, iprobe, improbe}[(lg/2+2*i)%4]
			st, m, err := find(c, p2p.AnySource, p2p.AnyTag)
			require.NoError(t, err)
			require.Equal(t, p2p.Status{Source: 0, Tag: tag, Len: int64(size)}, st)
			buf := fresh(size)
			if m != nil {
				st, err = []receive{mrecv, imrecv}[lg/4%2](m, buf)
			} else {
				st, err = c.Recv(background, st.Source, st.Tag, buf)
			}
			require.NoError(t, err)
			requireReceived(t, pattern(size, i), buf, st, 0, tag)
		}
	}
}

// probenull: probes of ProcNull succeed at once, with its status.
func probenull(t *testing.T, w *p2p.World) {
	st, found, err := w.Comm().Iprobe(p2p.ProcNull, 10)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, nothing, st)
	st, err = w.Comm().Probe(background, p2p.ProcNull, 10)
	require.NoError(t, err)
	require.Equal(t, nothing, st)
}

// mprobe: each matched probe with each way to receive what it took.
func mprobe(t *testing.T, ws []*p2p.World) {
	from, c := ws[0].Comm(), ws[1].Comm()
	for _, find := range []look{mprobeOnce, improbe} {
		for _, take := range []receive{mrecv, imrecv} {
			for i, size := range []int{8, 0, 1 << 20} { // tests 0 to 3, 13 and 9
				message, buf := pattern(size, i), fresh(size+10)
				s := from.Isend(1, 5, message)
				st, m, err := find(c, 0, 5)
				require.NoError(t, err)
				require.Equal(t, p2p.Status{Source: 0, Tag: 5, Len: int64(size)}, st)
				st, err = take(m, buf)
				require.NoError(t, err)
				requireReceived(t, message, buf, st, 0, 5)
				wait(t, s)
				requireUsed(t, m)
			}
			_, m, err := find(c, p2p.ProcNull, 5) // tests 4 to 7
			require.NoError(t, err)
			require.Equal(t, nothing, m.Status())
			buf := fresh(8)
			st, err := take(m, buf)
			require.NoError(t, err)
			require.Equal(t, nothing, st)
			require.Equal(t, fresh(8), buf)
		}
	}
	mprobeSync(t, from, c)
	mprobeOrder(t, from, c)
}

// requireUsed: a message is received once.
func requireUsed(t *testing.T, m *p2p.Message) {
	t.Helper()
	_, err := m.Recv(background, nil)
	require.ErrorIs(t, err, p2p.ErrInactive)
	require.Nil(t, m.Bytes())
}

// mprobeSync: a synchronous send completes by the receive, not by the probe (test 8).
func mprobeSync(t *testing.T, from, c *p2p.Comm) {
	message, buf := pattern(8, 1), fresh(8)
	s := from.Issend(1, 5, message)
	m, err := c.Mprobe(background, 0, 5)
	require.NoError(t, err)
	_, done, err := s.Test()
	require.NoError(t, err)
	require.False(t, done)
	st, err := m.Recv(background, buf)
	require.NoError(t, err)
	requireReceived(t, message, buf, st, 0, 5)
	wait(t, s)
}

// mprobeOrder: of two messages with one tag the probe takes the first, and a receive gets the
// second before the first is received (test 12).
func mprobeOrder(t *testing.T, from, c *p2p.Comm) {
	first, second := pattern(16, 1), pattern(8, 2)
	sends := []p2p.Request{from.Isend(1, 6, first), from.Isend(1, 6, second)}
	m, err := c.Mprobe(background, 0, 6)
	require.NoError(t, err)
	require.EqualValues(t, 16, m.Status().Len)
	buf := fresh(8)
	st, err := c.Recv(background, 0, 6, buf)
	require.NoError(t, err)
	requireReceived(t, second, buf, st, 0, 6)
	buf = fresh(16)
	st, err = m.Recv(background, buf)
	require.NoError(t, err)
	requireReceived(t, first, buf, st, 0, 6)
	require.NoError(t, p2p.WaitAll(background, sends, nil))
}

// truncmsgMrecv (truncmsg_mrecv): a message that a matched probe has taken into less than its
// length.
func truncmsgMrecv(t *testing.T, ws []*p2p.World) {
	for _, test := range []struct{ length, room int }{{8, 4}, {256, 252}, {400_000, 399_996}, {400_000, 0}} {
		for _, take := range []receive{mrecv, imrecv} {
			message, buf := pattern(test.length, test.room), fresh(test.room)
			s := ws[0].Comm().Isend(1, 0, message)
			m, err := ws[1].Comm().Mprobe(background, 0, 0)
			require.NoError(t, err)
			st, err := take(m, buf)
			requireTruncated(t, message, buf, st, err, 0)
			wait(t, s)
		}
	}
}

// proberank: a probe of a rank that there is not is an error, which says what is wrong.
func proberank(t *testing.T, w *p2p.World) {
	c := w.Comm()
	errs := make([]error, 4)
	_, errs[0] = c.Probe(background, -80, 1)
	_, _, errs[1] = c.Iprobe(-80, 1)
	_, errs[2] = c.Mprobe(background, -80, 1)
	_, _, errs[3] = c.Improbe(-80, 1)
	for _, err := range errs {
		require.ErrorIs(t, err, p2p.ErrInvalid)
		require.ErrorContains(t, err, "rank -80 is out of range")
		var op *p2p.OpError
		require.True(t, errors.As(err, &op))
	}
}

// mtProbe: four goroutines of rank 0 send to four of rank 1, which look before they receive. Probes
// that take the message share one tag too: each message is received once.
func mtProbe(t *testing.T, w *p2p.World, find look, taking bool) {
	tags := [][]p2p.Tag{{0, 1, 2, 3}}
	if taking {
		tags = append(tags, make([]p2p.Tag, 4))
	}
	for _, test := range []struct{ size, messages int }{{8, rounds(20)}, {100_000, rounds(6)}} {
		for _, tags := range tags {
			for _, by := range senders()[:2] { // the others prove no more here
				probeExchange(t, w, tags, by, find, test.size, test.messages)
			}
		}
	}
}

// probeExchange has a goroutine for each of tags at both ranks.
func probeExchange(t *testing.T, w *p2p.World, tags []p2p.Tag, by sender, find look, size, messages int) {
	got := make([][]int, len(tags))
	inThreads(t, w, len(tags), func(id int) {
		if w.Rank() == 1 {
			got[id] = probeNumbered(t, w.Comm(), tags[id], size, messages, find)
			return
		}
		var list [][]byte
		for i := range messages {
			list = append(list, numbered(size, id*messages+i))
		}
		by.send(t, w.Comm(), 1, tags[id], list...)
	})
	if w.Rank() == 1 {
		requireOnce(t, got, messages, len(tags) > 1 && tags[0] != tags[1])
	}
	meetAll(t, w)
}

func probeNumbered(t *testing.T, c *p2p.Comm, tag p2p.Tag, size, messages int, find look) (got []int) {
	for range messages {
		st, m, err := find(c, 0, tag)
		require.NoError(t, err)
		require.Equal(t, p2p.Status{Source: 0, Tag: tag, Len: int64(size)}, st)
		buf := fresh(size)
		if m != nil {
			st, err = m.Recv(background, buf)
		} else {
			st, err = c.Recv(background, 0, tag, buf)
		}
		require.NoError(t, err)
		number := int(binary.LittleEndian.Uint64(buf))
		requireReceived(t, numbered(size, number), buf, st, 0, tag)
		got = append(got, number)
	}
	return got
}

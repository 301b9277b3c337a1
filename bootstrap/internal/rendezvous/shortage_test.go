package rendezvous

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
)

// shortListener accepts as a process does that has descriptors for room connections. The first
// accept waits until dialled connections have come, so that none of them finds no listener later.
// Only one goroutine accepts.
type shortListener struct {
	net.Listener
	room, dialled int
	held, open    []net.Conn // to be returned by Accept, and returned before
}

func (l *shortListener) Accept() (net.Conn, error) {
	for ; l.dialled > 0; l.dialled-- {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.held = append(l.held, conn)
	}
	l.open = slices.DeleteFunc(l.open, closed)
	if len(l.open) == l.room {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	if len(l.held) == 0 {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.held = append(l.held, conn)
	}
	conn := l.held[0]
	l.held, l.open = l.held[1:], append(l.open, conn)
	return conn, nil
}

// closed reports whether this process has closed conn.
func closed(conn net.Conn) bool {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// serveShort joins rank 0 with descriptors for room ranks.
func serveShort(ctx context.Context, ln net.Listener, room int, me candidate) error {
	me.SetDefaults()
	short := &shortListener{Listener: ln, dialled: me.Size - 1, room: room}
	e, err := me.Serve(ctx, &me.Config, short, NewSecret(HandedOut))
	for _, conn := range short.held {
		_ = conn.Close()
	}
	if err == nil {
		err = e.Close()
	}
	return err
}

// told is a log that calls it with the message of each record.
type told func(msg string)

func (told) Enabled(context.Context, slog.Level) bool { return true }
func (h told) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h told) WithGroup(string) slog.Handler          { return h }
func (h told) Handle(_ context.Context, r slog.Record) error {
	h(r.Message)
	return nil
}

// TestNoDescriptorsAtRankZero: rank 0 has no descriptors for all ranks. At the end of its time to
// join it and those that have joined get the reason.
func TestNoDescriptorsAtRankZero(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	ctx := ranktest.Timeout(t)
	root := make(chan error, 1)
	serving, end := context.WithCancel(ctx)
	defer end()
	var joined atomic.Int32
	me := candidateOf(0, 4, "")
	me.Logger = slog.New(told(func(msg string) {
		switch {
		case msg == "rendezvous: rank has joined":
			joined.Add(1)
		case msg == "rendezvous cannot accept" && joined.Load() == 2:
			end()
		}
	}))
	go func() { root <- serveShort(serving, ln, 2, me) }()
	joining, giveUp := context.WithCancel(ctx)
	errs := make(chan error, 3)
	for rank := 1; rank <= 3; rank++ {
		go func() {
			_, err := candidateOf(rank, 4, port).join(joining)
			errs <- err
		}()
	}
	const lack = "of 4; rank 0 can accept no connections: accept tcp "
	for range 2 { // those that have joined
		err := <-errs
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, "rank 0 gave up waiting for all ranks to join (context canceled); still missing: rank ")
		require.ErrorContains(t, err, lack)
	}
	err = <-root
	require.ErrorContains(t, err, lack)
	require.ErrorContains(t, err, "too many open files: raise its limit of open files (ulimit -n)")
	giveUp()
	require.Error(t, <-errs)
}

// TestJoinTimeoutNamesLackOfDescriptors: rank 0 goes on waiting for descriptors when the time to
// join is over.
func TestJoinTimeoutNamesLackOfDescriptors(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	defer conn.Close()
	me := candidateOf(0, 2, "")
	ctx, logger := ranktest.CancelOn(t, "rendezvous cannot accept")
	me.Logger = logger
	err = serveShort(ctx, ln, 0, me)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "still missing: rank 1 of 2; rank 0 can accept no connections: accept tcp ")
	require.ErrorContains(t, err, "raise its limit of open files (ulimit -n)")
}

// TestLackThatPasses: what was short a while ago is not why ranks are missing.
func TestLackThatPasses(t *testing.T) {
	h := newHub(2, 2)
	h.accepts(syscall.EMFILE)
	require.Contains(t, h.deafLocked(), "ulimit")
	h.deafAt = h.deafAt.Add(-time.Minute)
	require.Empty(t, h.deafLocked())
}

func TestRemedy(t *testing.T) {
	for err, want := range map[error]string{syscall.EMFILE: "(ulimit -n)", syscall.ENFILE: "(sysctl fs.file-max)"} {
		err = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", err)}
		require.Contains(t, Remedy(err), want)
		d := Dialer{}
		require.Equal(t, Remedy(err), d.hint(err), "no other advice")
	}
	require.Empty(t, Remedy(syscall.ECONNREFUSED))
	require.Empty(t, Remedy(nil))
}

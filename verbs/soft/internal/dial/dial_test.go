package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/buffertest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

func TestMain(m *testing.M) {
	testlevel.ManyWait()
	os.Exit(m.Run())
}

// connEnd is a connector under test with what it has delivered.
type connEnd struct {
	*Connector
	self *wire.Address
	woke chan struct{}
	logs *buffertest.Buffer
}

func dialTCP(ctx context.Context, a *wire.Address) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", a.TCP[0])
}

func newConnEnd(t testing.TB, rank uint32, id byte, change ...func(*Config)) *connEnd {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &connEnd{woke: make(chan struct{}, 1), logs: &buffertest.Buffer{}}
	e.self = &wire.Address{ID: wire.NewDeviceID(), Rank: rank, TCP: []string{ln.Addr().String()}}
	e.self.ID[0] = id
	cfg := Config{Self: e.self, Secret: []byte("secret"), Kind: "tcp", Listener: ln, Dial: dialTCP, Turns: true, Retry: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(e.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Wake: func() {
			select {
			case e.woke <- struct{}{}:
			default:
			}
		}}
	for _, f := range change {
		f(&cfg)
	}
	e.Connector = New(cfg)
	t.Cleanup(e.Close)
	return e
}

// next waits for one result.
func (e *connEnd) next(t testing.TB) Result {
	t.Helper()
	var got []Result
	wiretest.Within(t, "connection result", func() {
		for len(got) == 0 {
			<-e.woke
			got = e.Take()
		}
	})
	require.Len(t, got, 1)
	if c := got[0].Conn; c != nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return got[0]
}

// requireJoined checks that two ends hold the ends of one connection.
func requireJoined(t testing.TB, a, b Result) {
	t.Helper()
	require.NoError(t, a.Err)
	require.NoError(t, b.Err)
	require.Equal(t, a.Conn.LocalAddr().String(), b.Conn.RemoteAddr().String())
	_, err := a.Conn.Write([]byte("ping"))
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(b.Conn, got)
	require.NoError(t, err)
	require.Equal(t, "ping", string(got))
}

func TestConnectorConnects(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := newConnEnd(t, 0, 1), newConnEnd(t, 1, 2)
	a.Connect(b.self)
	a.Connect(b.self)
	ra, rb := a.next(t), b.next(t)
	requireJoined(t, ra, rb)
	require.Equal(t, b.self, ra.Peer)
	require.Equal(t, a.self, rb.Peer)
	// Nothing more comes, not even when the acceptor asks now.
	b.Connect(a.self)
	a.Connect(b.self)
	require.False(t, a.Pending())
	require.False(t, b.Pending())
	a.Close()
	b.Close()
}

func TestConnectorAgainAfterForget(t *testing.T) {
	a, b := newConnEnd(t, 0, 1), newConnEnd(t, 1, 2)
	for i := range 6 {
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		from.Connect(to.self)
		rf, rt := from.next(t), to.next(t)
		requireJoined(t, rf, rt)
		_ = rf.Conn.Close()
		_ = rt.Conn.Close()
		a.Forget(b.self.ID)
		b.Forget(a.self.ID)
		require.Empty(t, a.peers)
		require.Empty(t, b.peers)
	}
}

// TestConnectorCrossing lets both sides dial at about the same time, many times: there must be one
// connection, the same at both ends.
func TestConnectorCrossing(t *testing.T) {
	defer goleak.VerifyNone(t)
	rounds := 1500
	if !testlevel.CI() {
		rounds = 200
	}
	for range rounds {
		crossOnce(t)
	}
}

func crossOnce(t *testing.T) {
	a, b := newConnEnd(t, 0, byte(rand.Uint32())), newConnEnd(t, 1, byte(rand.Uint32()))
	defer a.Close()
	defer b.Close()
	spin := rand.IntN(400)
	var wg sync.WaitGroup
	wg.Go(func() { a.Connect(b.self) })
	wg.Go(func() {
		for range spin {
			runtime.Gosched()
		}
		b.Connect(a.self)
	})
	wg.Wait()
	ra, rb := a.next(t), b.next(t)
	defer discard(&ra)
	defer discard(&rb)
	requireJoined(t, ra, rb)
	a.Close() // waits for everything under way, so that a second result would be there now
	b.Close()
	require.False(t, a.Pending() || b.Pending(), "more than one connection")
}

// TestConnectorMesh connects several devices all to all, from all sides.
func TestConnectorMesh(t *testing.T) {
	const n = 8
	var ends [n]*connEnd
	for i := range ends {
		ends[i] = newConnEnd(t, uint32(i), byte(rand.Uint32()))
	}
	for _, a := range ends {
		for _, b := range ends {
			if a != b {
				a.Connect(b.self)
			}
		}
	}
	addrs := map[string]int{}
	for _, a := range ends {
		peers := map[wire.DeviceID]bool{}
		wiretest.Within(t, "mesh", func() {
			for len(peers) < n-1 {
				<-a.woke
				for _, r := range a.Take() {
					if r.Err != nil || peers[r.Peer.ID] {
						t.Errorf("rank %d: %v %v", a.self.Rank, r.Peer, r.Err)
						return
					}
					peers[r.Peer.ID] = true
					x, y := r.Conn.LocalAddr().String(), r.Conn.RemoteAddr().String()
					addrs[min(x, y)+max(x, y)]++
					t.Cleanup(func() { _ = r.Conn.Close() })
				}
			}
		})
	}
	require.Len(t, addrs, n*(n-1)/2)
	for pair, k := range addrs {
		require.Equal(t, 2, k, pair)
	}
}

func TestConnectorRefusals(t *testing.T) {
	for _, c := range []struct {
		name, want, log string
		change          func(*Config)
		address         func(*wire.Address)
	}{
		{name: "secret", want: "does not have the secret", log: "does not have the secret",
			change: func(c *Config) { c.Secret = []byte("another") }},
		{name: "kind", want: `a \"shm\" connection came to a \"tcp\" listener: use the same build and settings on all ranks`, log: "shm", change: func(c *Config) { c.Kind = "shm" }},
		{name: "device", want: "is not here", log: "is not here", address: func(a *wire.Address) { a.ID[5]++ }},
		{name: "rank", want: "is not here", log: "of rank 9", address: func(a *wire.Address) { a.Rank = 9 }},
		{name: "self", want: "does not connect to itself", log: "itself",
			change:  func(c *Config) { c.Self = &wire.Address{ID: wire.DeviceID{2, 2}, Rank: 1} },
			address: func(a *wire.Address) { a.ID, a.Rank = wire.DeviceID{2, 2}, 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newConnEnd(t, 1, 2, func(cfg *Config) {
				if c.name == "self" {
					cfg.Self.ID = wire.DeviceID{2, 2}
				}
			})
			a := newConnEnd(t, 0, 1, func(cfg *Config) {
				if c.change != nil {
					c.change(cfg)
				}
			})
			peer := *b.self
			if c.address != nil {
				c.address(&peer)
			}
			a.Connect(&peer)
			r := a.next(t)
			require.ErrorContains(t, r.Err, c.want)
			require.ErrorContains(t, r.Err, fmt.Sprintf("cannot connect to rank %d", peer.Rank))
			require.ErrorIs(t, r.Err, verbs.ErrRefused)
			wiretest.Within(t, "log of the acceptor", func() {
				for !strings.Contains(b.logs.String(), c.log) {
					runtime.Gosched()
				}
			})
			require.False(t, b.Pending())
		})
	}
}

// TestConnectorFalseAcceptor has an acceptor that cannot prove that it has the secret, though it
// accepts.
func TestConnectorFalseAcceptor(t *testing.T) {
	for _, c := range []struct {
		name, want string
		answer     func(conn net.Conn)
	}{
		{"no secret", "acceptor does not have the secret", func(conn net.Conn) {
			_ = writeMsg(conn, msgChallenge, make([]byte, nonceSize))
			_, _ = readMsg(conn, msgProof)
			_ = writeMsg(conn, msgAccept, make([]byte, macSize))
			_, err := readMsg(conn, msgConfirm)
			if r := (*rejectError)(nil); !errors.As(err, &r) || r.code != rejectSecret {
				panic("the acceptor was not told")
			}
		}},
		{"reflected proof", "acceptor does not have the secret", func(conn net.Conn) {
			_ = writeMsg(conn, msgChallenge, make([]byte, nonceSize))
			proof, _ := readMsg(conn, msgProof)
			_ = writeMsg(conn, msgAccept, proof)
		}},
		{"other service", "something else than tagmatch answers", func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}},
		{"newer version", "version 2", func(conn net.Conn) {
			writeReject(conn, Refuse(rejectVersion, "protocol version 1, this side speaks version 2"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer ln.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _, _ = readHello(conn)
				c.answer(conn)
			})
			a := newConnEnd(t, 0, 1)
			a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3, TCP: []string{ln.Addr().String()}})
			r := a.next(t)
			require.ErrorContains(t, r.Err, c.want)
			require.ErrorContains(t, r.Err, "rank 3")
			require.ErrorContains(t, r.Err, ln.Addr().String())
		})
	}
}

// TestConnectorGarbage throws everything but a good handshake at a listener, more often than it has
// room for strangers; then a real peer must get through.
func TestConnectorGarbage(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := newConnEnd(t, 1, 2)
	good := (&hello{kind: "tcp", src: wire.DeviceID{9}, dst: b.self.ID, dstRank: 1, addr: (&wire.Address{ID: wire.DeviceID{9}}).Encode()}).sign([]byte("secret"))
	throw := func(junk []byte) {
		conn, err := net.Dial("tcp", b.self.TCP[0])
		require.NoError(t, err)
		_, _ = conn.Write(junk)
		_ = conn.Close()
	}
	turned := func(n int) {
		wiretest.Within(t, "the end of all but the good hello, which counts once", func() {
			for b.door.Turned() < n {
				runtime.Gosched()
			}
		})
	}
	unknown := append([]byte(helloMagic), 0xff, 0xff, 0xff, 0xff)
	throw(nil) // who says nothing and goes is not counted: it may be a peer that has given its dial up
	for _, junk := range [][]byte{{0}, []byte("GET / HTTP/1.1\r\n\r\n"), bytes.Repeat([]byte{0xff}, 1<<16), good[:20],
		good, append(good[:len(good):len(good)], bytes.Repeat([]byte{7}, 4096)...), unknown} {
		for range maxStrangers / 4 {
			throw(junk)
		}
	}
	a := newConnEnd(t, 0, 1)
	a.Connect(b.self)
	requireJoined(t, a.next(t), b.next(t))
	turned(maxStrangers/4*7 - 1)
	throw(unknown)
	turned(maxStrangers / 4 * 7)
	a.Close()
	b.Close() // which tells why the last one was turned away
	require.Contains(t, b.logs.String(), "protocol version 65535")
}

// recorder remembers what is written first.
type recorder struct {
	net.Conn
	first *[]byte
}

func (r recorder) Write(b []byte) (int, error) {
	if *r.first == nil {
		*r.first = bytes.Clone(b)
	}
	return r.Conn.Write(b)
}

// TestConnectorReplay: a hello lets in whoever sends it first, and only as the peer has made it.
func TestConnectorReplay(t *testing.T) {
	var first []byte
	b := newConnEnd(t, 1, 2)
	a := newConnEnd(t, 0, 1, func(c *Config) {
		c.Dial = func(ctx context.Context, to *wire.Address) (net.Conn, error) {
			conn, err := dialTCP(ctx, to)
			return recorder{conn, &first}, err
		}
	})
	a.Connect(b.self)
	a.next(t)
	b.next(t)
	answer := func(hello []byte) error {
		conn, err := net.Dial("tcp", b.self.TCP[0])
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write(hello)
		require.NoError(t, err)
		_, err = readMsg(conn, msgChallenge)
		return err
	}
	require.ErrorContains(t, answer(first), "a hello of rank 0 that was sent before")
	h, _, err := readHello(bytes.NewReader(first))
	require.NoError(t, err)
	h.nonce[0]++
	require.ErrorContains(t, answer(h.encode()), "does not have the secret")
	h.src[0]++
	require.ErrorContains(t, answer(h.sign([]byte("another"))), "does not have the secret")
	c := newConnEnd(t, 2, 3)
	c.Connect(b.self)
	requireJoined(t, c.next(t), b.next(t))
}

func TestConnectorUpgrade(t *testing.T) {
	up := func(c *Config) {
		rank := c.Self.Rank
		c.Upgrade = func(conn net.Conn, _ any) (any, error) {
			_, err := conn.Write([]byte{byte(rank)})
			if err != nil {
				return nil, err
			}
			var b [1]byte
			_, err = io.ReadFull(conn, b[:])
			return b[0], err
		}
	}
	a, b := newConnEnd(t, 3, 1, up), newConnEnd(t, 5, 2, up)
	a.Connect(b.self)
	ra, rb := a.next(t), b.next(t)
	requireJoined(t, ra, rb)
	require.Equal(t, byte(5), ra.Upgraded)
	require.Equal(t, byte(3), rb.Upgraded)
}

type closeCounter struct{ n *int }

func (c closeCounter) Close() error { *c.n++; return nil }

func TestConnectorUpgradeFails(t *testing.T) {
	closed := 0
	a := newConnEnd(t, 3, 1, func(c *Config) {
		c.Upgrade = func(net.Conn, any) (any, error) {
			return closeCounter{&closed}, errors.New("no memory today")
		}
	})
	b := newConnEnd(t, 5, 2, func(c *Config) {
		c.Upgrade = func(conn net.Conn, _ any) (any, error) {
			_, err := io.ReadFull(conn, make([]byte, 1))
			return nil, err
		}
	})
	a.Connect(b.self)
	require.ErrorContains(t, a.next(t).Err, "no memory today")
	require.Equal(t, 1, closed)
	require.False(t, b.Pending(), "who did not ask is not told")
}

func FuzzHello(f *testing.F) {
	f.Add([]byte{})
	f.Add((&hello{kind: "tcp", addr: (&wire.Address{Rank: 7, TCP: []string{"10.0.0.1:4000"}}).Encode()}).encode())
	f.Add((&hello{}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, raw, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		require.Equal(t, raw, h.encode(), "there is one encoding of a hello")
	})
}

func FuzzHandshakeMessage(f *testing.F) {
	f.Add([]byte{byte(msgReject), 1, 0, 3})
	f.Add([]byte{byte(msgConfirm), 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for want := msgChallenge; want <= msgConfirm; want++ {
			body, err := readMsg(bytes.NewReader(b), want)
			if err == nil {
				require.Len(t, body, msgSize[want])
			}
		}
	})
}

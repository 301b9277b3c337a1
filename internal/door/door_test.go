package door

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// street is a listener to which a test sends connections, in a process that can have room of them
// open; below 0: any number.
type street struct {
	come   chan *caller
	closed chan struct{}
	room   int

	mu   sync.Mutex
	open int
}

func newStreet() *street {
	return &street{come: make(chan *caller), closed: make(chan struct{}), room: -1}
}

func (s *street) Accept() (net.Conn, error) {
	s.mu.Lock()
	full := s.open == s.room
	s.mu.Unlock()
	if full {
		return nil, os.NewSyscallError("accept4", syscall.EMFILE)
	}
	select {
	case c := <-s.come:
		s.mu.Lock()
		s.open++
		s.mu.Unlock()
		c.street = s
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *street) Close() error { close(s.closed); return nil }
func (*street) Addr() net.Addr { return nil }

// caller is a connection without a word, from an address.
type caller struct {
	net.Conn // nil
	from     string
	known    bool
	street   *street
	served   chan *Visitor // gets it when it is served
	ended    chan struct{} // closed with the connection
	once     sync.Once
}

func (c *caller) Read([]byte) (int, error)    { <-c.ended; return 0, net.ErrClosed }
func (c *caller) SetDeadline(time.Time) error { return nil }
func (c *caller) Close() error {
	c.once.Do(func() {
		close(c.ended)
		c.street.mu.Lock()
		c.street.open--
		c.street.mu.Unlock()
	})
	return nil
}

func (c *caller) isOpen() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// house is a Door on a street.
type house struct {
	*Door
	street *street
	failed chan error
	warned chan Turned
}

func newHouse(t *testing.T, s *street, strangers int) *house {
	h := &house{street: s, failed: make(chan error, 1000), warned: make(chan Turned, 10)}
	var comes *caller
	h.Door = Open(Config{Listener: s, Strangers: strangers,
		Accept: func() (net.Conn, error) {
			conn, err := s.Accept()
			comes, _ = conn.(*caller)
			return conn, err
		},
		From: func(conn net.Conn) (Who, error) {
			if from := conn.(*caller).from; from != "foreign" {
				return Who(from), nil
			}
			return "user 7", errors.New("another user")
		},
		Known: func([]byte) bool { return comes.known },
		Serve: func(v *Visitor) error {
			v.Conn.(*caller).served <- v
			_, err := v.Read(nil)
			return err
		},
		Failed: func(err error) (net.Conn, error) {
			h.failed <- err
			return nil, err
		},
		Warn: func(t Turned) { h.warned <- t },
	})
	t.Cleanup(func() {
		h.Close()
		h.Wait()
	})
	return h
}

// let has a connection come, and returns once it is served.
func (h *house) let(t *testing.T, from string, known bool) (*caller, *Visitor) {
	t.Helper()
	c := &caller{from: from, known: known, served: make(chan *Visitor, 1), ended: make(chan struct{})}
	h.street.come <- c
	v := within(t, c.served)
	t.Cleanup(func() { _ = c.Close() }) // of those that have passed
	return c, v
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testlevel.Patience(30 * time.Second)):
		require.FailNow(t, "waited in vain")
	}
	panic("unreachable")
}

// TestNewcomersReplace: the letters are the addresses from which strangers come, one after the
// other, to a door with room for three. Of those that go the places in the order are wanted.
func TestNewcomersReplace(t *testing.T) {
	for come, gone := range map[string][]int{
		"aaa":       {},
		"aaaa":      {0},
		"aaaaaa":    {0, 1, 2},
		"abc":       {},
		"abcd":      {0}, // each has one: the oldest goes
		"baaa":      {1}, // the oldest of who has most, which is not the oldest
		"baaaaaaaa": {1, 2, 3, 4, 5, 6},
		"aabb":      {0},
		"abbb":      {1},
		"abbbc":     {1, 2},
		"abbbca":    {1, 2, 0},
	} {
		t.Run(come, func(t *testing.T) {
			h := newHouse(t, newStreet(), 3)
			var list []*caller
			var visitors []*Visitor
			for _, from := range strings.Split(come, "") {
				c, v := h.let(t, from, false)
				list, visitors = append(list, c), append(visitors, v)
			}
			for _, k := range gone {
				within(t, list[k].ended)
				require.ErrorIs(t, visitors[k].Pass(func() error { return nil }), ErrReplaced)
			}
			open := 0
			for _, c := range list {
				if c.isOpen() {
					open++
				}
			}
			require.Equal(t, len(come)-len(gone), open)
			require.Equal(t, len(gone), h.Turned())
		})
	}
}

// TestKnownStay: who is known by its first bytes, or passes later, is not limited and not replaced.
func TestKnownStay(t *testing.T) {
	h := newHouse(t, newStreet(), 1)
	var stay []*caller
	for range 20 {
		c, v := h.let(t, "a", true)
		require.True(t, v.Passed())
		require.NoError(t, v.Pass(func() error { return errors.New("was looked at before") }))
		stay = append(stay, c)
		c, v = h.let(t, "a", false)
		require.False(t, v.Passed())
		no := errors.New("no")
		require.ErrorIs(t, v.Pass(func() error { return no }), no)
		require.NoError(t, v.Pass(func() error { return nil }))
		stay = append(stay, c)
	}
	last, _ := h.let(t, "a", false)
	next, _ := h.let(t, "a", false)
	within(t, last.ended)
	require.True(t, next.isOpen())
	for _, c := range stay {
		require.True(t, c.isOpen())
	}
	require.Equal(t, 1, h.Turned())
	h.Close()
	within(t, next.ended)
	for _, c := range stay {
		require.True(t, c.isOpen(), "it is not the door's")
	}
}

// TestForeign: whom From refuses is not served at all.
func TestForeign(t *testing.T) {
	h := newHouse(t, newStreet(), 1)
	own, _ := h.let(t, "a", false)
	for range 3 {
		c := &caller{from: "foreign", ended: make(chan struct{})}
		h.street.come <- c
		within(t, c.ended)
	}
	require.True(t, own.isOpen())
	require.Equal(t, 3, h.Turned())
	w := within(t, h.warned)
	require.Equal(t, Who("user 7"), w.From)
	require.ErrorContains(t, w.Err, "another user")
}

// TestWhoLeavesIsNotCounted: Serve returns nil for a stranger that has gone by itself.
func TestWhoLeavesIsNotCounted(t *testing.T) {
	served := make(chan *Visitor, 1)
	d, at := listenTCP(t, nil, func(v *Visitor) error {
		_, err := v.Read(make([]byte, 1))
		served <- v
		if err == io.EOF {
			return nil
		}
		return err
	})
	conn, err := net.Dial("tcp", at)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	v := within(t, served)
	d.Close()
	d.Wait()
	require.Zero(t, d.Turned())
	require.False(t, v.Passed())
	_, err = v.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestNoDescriptors: where there is no descriptor left a stranger goes for a newcomer, not at once,
// and nobody else; without strangers the owner is told.
func TestNoDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time passes only while all wait
		s := newStreet()
		s.room = 3
		h := newHouse(t, s, 10)
		known, _ := h.let(t, "a", true)
		old, _ := h.let(t, "b", false)
		young, v := h.let(t, "c", false)
		require.ErrorIs(t, within(t, h.failed), syscall.EMFILE, "they may be ranks whose greeting is about to come")
		within(t, old.ended)
		require.NoError(t, v.Pass(func() error { return nil }))
		next, w := h.let(t, "d", false)
		require.NoError(t, w.Pass(func() error { return nil }))
		for len(h.failed) > 0 {
			require.Error(t, <-h.failed)
		}
		for range 3 {
			require.ErrorIs(t, within(t, h.failed), syscall.EMFILE)
		}
		for _, c := range []*caller{known, young, next} {
			require.True(t, c.isOpen())
		}
	})
}

// TestWarnings: the first that is turned away is told of at once, the others together.
func TestWarnings(t *testing.T) {
	h := newHouse(t, newStreet(), 1)
	h.let(t, "a", false)
	h.let(t, "b", false)
	w := within(t, h.warned)
	require.Equal(t, Turned{1, "a", ErrReplaced}, w)
	for range 5 {
		h.let(t, "c", false)
	}
	h.Close()
	h.Wait()
	require.Equal(t, Turned{5, "c", ErrReplaced}, within(t, h.warned))
	require.Empty(t, h.warned)
}

// listenTCP opens a door at a port of this host whose greeting is 8 bytes.
func listenTCP(t *testing.T, known func([]byte) bool, serve func(v *Visitor) error) (*Door, string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := Open(Config{Listener: ln, Greeting: 8, Known: known, Serve: serve, Strangers: 4, Warn: func(Turned) {},
		Failed: func(err error) (net.Conn, error) { return nil, err }})
	t.Cleanup(func() {
		d.Close()
		d.Wait()
	})
	return d, ln.Addr().String()
}

// TestTimeOfStrangers: who says nothing, or one byte now and then, is closed.
func TestTimeOfStrangers(t *testing.T) {
	ends := make(chan error, 2)
	d, at := listenTCP(t, nil, func(v *Visitor) error {
		_, err := io.ReadFull(v, make([]byte, 100))
		ends <- err
		return err
	})
	for _, slow := range []bool{false, true} {
		conn, err := net.Dial("tcp", at)
		require.NoError(t, err)
		defer conn.Close()
		if slow {
			go func() {
				for err == nil {
					_, err = conn.Write([]byte{1})
					time.Sleep(20 * time.Millisecond)
				}
			}()
		}
	}
	require.ErrorIs(t, within(t, ends), os.ErrDeadlineExceeded)
	require.ErrorIs(t, within(t, ends), os.ErrDeadlineExceeded)
	require.Eventually(t, func() bool { return d.Turned() == 2 }, testlevel.Patience(30*time.Second), time.Millisecond)
}

// TestFirstBytes: what has come with a connection is looked at, and left for who serves it. The
// listener has many connections when the first one is accepted: none of the strangers puts out one
// that has greeted.
func TestFirstBytes(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.False(t, Waiting(ln))
	const n = 100
	for k := range n {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		if k%10 == 0 {
			_, err = conn.Write(binary.BigEndian.AppendUint64(nil, uint64(k)))
			require.NoError(t, err)
		}
	}
	require.True(t, Waiting(ln))
	got := make(chan uint64, n)
	d := Open(Config{Listener: ln, Greeting: 8, Strangers: 4, Warn: func(Turned) {},
		Known: func(first []byte) bool { return len(first) == 8 },
		Serve: func(v *Visitor) error {
			var b [8]byte
			if _, err := io.ReadFull(v, b[:]); err != nil {
				return err
			}
			got <- binary.BigEndian.Uint64(b[:])
			return v.Conn.Close()
		}})
	seen := map[uint64]bool{}
	for range n / 10 {
		seen[within(t, got)] = true
	}
	require.Len(t, seen, n/10)
	d.Close()
	d.Wait()
}

func TestNonces(t *testing.T) {
	var s Nonces
	nonce := func(k int) (n Nonce) {
		binary.BigEndian.PutUint64(n[:], uint64(k))
		return n
	}
	for k := range 3 * maxNonces {
		require.True(t, s.Fresh(nonce(k)))
		require.False(t, s.Fresh(nonce(k)))
		require.False(t, s.Fresh(nonce(max(0, k-maxNonces+1))), "the oldest of those that are remembered")
	}
	require.Len(t, s.seen, maxNonces)
	require.Len(t, s.ring, maxNonces)
}

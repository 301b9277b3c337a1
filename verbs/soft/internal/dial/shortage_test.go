package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// short makes a connector's first n preparations fail with err, and counts all. What passes is
// waited for however long it takes.
func short(n int64, err error, tries *atomic.Int64) func(*Config) {
	return func(c *Config) {
		c.Retry, c.Refused = time.Hour, time.Hour
		c.Prepare = func(net.Conn, *wire.Address) (any, error) {
			if tries.Add(1) <= n {
				return nil, err
			}
			return closeCounter{new(int)}, nil
		}
	}
}

const forEver = 1 << 40

// TestShortagePasses: what either end is short of for a time costs nobody the connection.
func TestShortagePasses(t *testing.T) {
	defer goleak.VerifyNone(t)
	for err, times := range map[error]int64{
		syscall.EMFILE: 3, syscall.ENFILE: 3, syscall.ENOMEM: 3, syscall.ENOSPC: 3, syscall.ETOOMANYREFS: 3,
		syscall.EPERM: 1, syscall.ENOSYS: 1,
	} {
		for side := range 2 {
			var tries [2]atomic.Int64
			n := [2]int64{}
			n[side] = times
			a := newConnEnd(t, 3, 1, short(n[0], err, &tries[0]))
			b := newConnEnd(t, 5, 2, short(n[1], err, &tries[1]))
			a.Connect(b.self)
			requireJoined(t, a.next(t), b.next(t))
			require.EqualValues(t, times+1, tries[0].Load())
			require.EqualValues(t, times+1, tries[1].Load())
			a.Close()
			b.Close()
		}
	}
}

// TestShortageOfUpgradePasses: what an end is short of in the middle of an upgrade it cannot tell
// the peer, who sees the connection end. So it is with what came changed.
func TestShortageOfUpgradePasses(t *testing.T) {
	for _, why := range []error{&net.OpError{Op: "write", Err: os.NewSyscallError("sendmsg", syscall.ETOOMANYREFS)}, &Again{errors.New("changed")}} {
		for lacking := range 2 {
			var tries [2]atomic.Int64
			upgrade := func(side int) func(*Config) {
				return func(c *Config) {
					c.Upgrade = func(conn net.Conn, _ any) (any, error) {
						if tries[side].Add(1) <= 3 && side == lacking {
							return nil, why
						}
						return nil, errors.Join(writeMsg(conn, msgReady, nil), second(readMsg(conn, msgReady)))
					}
				}
			}
			a, b := newConnEnd(t, 3, 1, upgrade(0)), newConnEnd(t, 5, 2, upgrade(1))
			a.Connect(b.self)
			requireJoined(t, a.next(t), b.next(t))
			require.EqualValues(t, 4, tries[lacking].Load())
		}
	}
}

func second(_ []byte, err error) error { return err }

// TestShortageIsNamed: one that stays is named for what it is, and for whose it is, by the end that
// asked for the connection.
func TestShortageIsNamed(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EMFILE: "rank 5 has no file descriptor left", syscall.ENFILE: "the host of rank 5 has no file descriptor left",
		syscall.ENOMEM: "rank 5 has no memory left", syscall.ENOSPC: "rank 5 has no memory left",
		syscall.ETOOMANYREFS: "the user of rank 5 has too many file descriptors under way", syscall.ENOSYS: "the kernel refuses rank 5 a system call",
	} {
		for lacking := range 2 {
			var tries [2]atomic.Int64
			n := [2]int64{}
			n[lacking] = forEver
			ranks := [2]uint32{5, 5}
			ranks[1-lacking] = 3
			a := newConnEnd(t, ranks[0], 1, short(n[0], err, &tries[0]), func(c *Config) { c.Retry = 100 * time.Millisecond })
			b := newConnEnd(t, ranks[1], 2, short(n[1], err, &tries[1]))
			a.Connect(b.self)
			failed := a.next(t).Err
			require.ErrorContains(t, failed, want)
			require.ErrorIs(t, failed, verbs.ErrRefused)
			require.False(t, b.Pending(), "who did not ask is not told")
			a.Close()
			b.Close()
		}
	}
}

// TestOwnShortageIsNamed: who has no descriptor to dial with is not told to look at the network.
func TestOwnShortageIsNamed(t *testing.T) {
	a := newConnEnd(t, 5, 1, func(c *Config) {
		c.Retry = time.Millisecond
		c.Dial = func(context.Context, *wire.Address) (net.Conn, error) { return nil, syscall.EMFILE }
	})
	b := newConnEnd(t, 3, 2)
	a.Connect(b.self)
	err := a.next(t).Err
	require.ErrorContains(t, err, "rank 5 has no file descriptor left")
	require.ErrorIs(t, err, verbs.ErrRefused)
	require.ErrorIs(t, err, syscall.EMFILE)
}

// TestShortageIsToldLater: a device that asks for a connection when the other has given it up hears
// why, though nobody is short of anything now, until the other expects it again.
func TestShortageIsToldLater(t *testing.T) {
	for lacking := range 2 {
		var tries [2]atomic.Int64
		a := newConnEnd(t, 5, byte(1+lacking), short(4, syscall.EMFILE, &tries[0]), func(c *Config) { c.Retry = time.Millisecond })
		b := newConnEnd(t, 3, byte(2-lacking), short(0, nil, &tries[1]))
		a.Connect(b.self)
		require.ErrorContains(t, a.next(t).Err, "rank 5 has no file descriptor left")
		tries[0].Store(forEver)
		b.Connect(a.self)
		err := b.next(t).Err
		require.ErrorContains(t, err, "rank 5 has given up rank 3: rank 5 has no file descriptor left")
		require.ErrorIs(t, err, verbs.ErrRefused)
		require.ErrorIs(t, err, verbs.ErrPeerFailed)
		a.Expect(b.self.ID)
		b.Connect(a.self)
		requireJoined(t, b.next(t), a.next(t))
	}
}

// TestCutIsToldLater: a device that asks for a connection when the other could not reach it hears
// that, and that the reason is on the way.
func TestCutIsToldLater(t *testing.T) {
	a := newConnEnd(t, 5, 1, func(c *Config) {
		c.Retry = time.Millisecond
		c.Dial = func(context.Context, *wire.Address) (net.Conn, error) { return nil, syscall.EHOSTUNREACH }
	})
	b := newConnEnd(t, 3, 2)
	a.Connect(b.self)
	require.ErrorIs(t, a.next(t).Err, syscall.EHOSTUNREACH)
	b.Connect(a.self)
	err := b.next(t).Err
	require.ErrorContains(t, err, "rank 5 has given up rank 3: no route to host")
	require.ErrorIs(t, err, verbs.ErrUnreachable)
	require.NotErrorIs(t, err, verbs.ErrRefused, "it is not the fault of an end")
}

// TestUnfitIsFinal: what is no shortage is not tried again.
func TestUnfitIsFinal(t *testing.T) {
	var tries [2]atomic.Int64
	a := newConnEnd(t, 3, 1, short(0, nil, &tries[0]))
	b := newConnEnd(t, 5, 2, short(forEver, errors.New("another user"), &tries[1]))
	a.Connect(b.self)
	require.ErrorContains(t, a.next(t).Err, "rank 5: another user")
	require.EqualValues(t, 1, tries[1].Load())
	require.NotErrorIs(t, a.failure(a.self, errors.New("another user")), verbs.ErrProtocol)
}

// TestViolationIsNamed: what an end finds in what the other has sent for the upgrade is a violation
// to it, and an accusation to the other.
func TestViolationIsNamed(t *testing.T) {
	for finder, want := range []error{verbs.ErrProtocol, verbs.ErrAccused} {
		var tries [2]atomic.Int64
		n := [2]int64{}
		n[finder] = forEver
		found := fmt.Errorf("%w: a ring without an end", verbs.ErrProtocol)
		a, b := newConnEnd(t, 3, 1, short(n[0], found, &tries[0])), newConnEnd(t, 5, 2, short(n[1], found, &tries[1]))
		a.Connect(b.self)
		err := a.next(t).Err
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "a ring without an end")
		require.EqualValues(t, 1, tries[finder].Load())
	}
}

// TestViolationOfHandshake: messages that are none, and hellos.
func TestViolationOfHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		sent []byte
		want error
	}{
		"out of turn":  {[]byte{byte(msgProof), macSize, 0}, verbs.ErrProtocol},
		"another size": {[]byte{byte(msgReady), 1, 0, 0}, verbs.ErrProtocol},
		"accused":      {[]byte{byte(msgReject), 2, 0, byte(rejectViolated), 'x'}, verbs.ErrAccused},
		"of its hello": {[]byte{byte(msgReject), 2, 0, byte(rejectHello), 'x'}, verbs.ErrAccused},
		"for another":  {[]byte{byte(msgReject), 2, 0, byte(rejectShort), 'x'}, nil},
		"cut":          {[]byte{byte(msgReady)}, nil},
	} {
		_, err := readMsg(bytes.NewReader(c.sent), msgReady)
		for _, kind := range []error{verbs.ErrProtocol, verbs.ErrAccused} {
			require.Equal(t, c.want == kind, errors.Is(err, kind), "%s: %v", name, err)
		}
	}
	_, err := helloLength(append([]byte(helloMagic), protocolVersion, 0, 1, 0))
	require.ErrorIs(t, err, verbs.ErrProtocol)
}

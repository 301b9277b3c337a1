package rendezvous

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// openStore starts a store for size ranks, of which rank 0 has joined, and returns its port.
func openStore(t *testing.T, size int, secret Secret) (*hub, string) {
	t.Helper()
	return openStoreTLS(t, size, secret, "")
}

func openStoreTLS(t *testing.T, size int, secret Secret, tls string) (*hub, string) {
	t.Helper()
	ln, port := listen(t)
	cfg := candidateOf(0, size, "").with(t, secret, tls).Config
	cfg.SetDefaults()
	h := newHub(size, fanOut)
	e := newEndpoint(0, size, Info{})
	e.up = &localLink{h, 0}
	h.join(0, localMember{e})
	s := newStore(h, ln, &cfg, "", secret)
	t.Cleanup(s.close)
	return h, port
}

// TestWrongSecret: an impostor tries first. Both sides report it, and the job starts without it.
func TestWrongSecret(t *testing.T) {
	tests := []struct {
		name       string
		root, rank Secret
		want       string
	}{
		{"different", given(1), given(2), "the job secret of this rank (from TAGMATCH_SECRET) is not that of rank 0: give all ranks the same"},
		{"missing at the rank", given(1), Secret{}, "rank 0 has a job secret, rank 1 has none"},
		{"missing at rank 0", Secret{}, given(1), "rank 1 has a job secret, rank 0 has none"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := candidates(t, 2)
			ctx := ranktest.Timeout(t)
			var wrong atomic.Value
			list := make([]*Endpoint, 2)
			ranktest.Each(t, 2, func(r int) (err error) {
				if r == 1 {
					_, err := at(1).with(t, tt.rank, "").join(ctx)
					wrong.Store(err)
				}
				list[r], err = at(r).with(t, tt.root, "").join(ctx)
				return err
			})
			err := wrong.Load().(error)
			require.ErrorIs(t, err, ErrSecret)
			require.ErrorContains(t, err, tt.want)
			ranktest.Each(t, 2, func(r int) error { return list[r].Fence(ctx) })
			closeAll(t, list)
		})
	}
}

func TestWrongSecretIsNamedAtRankZero(t *testing.T) {
	at := candidates(t, 2)
	errs := ranktest.Outcomes(2, func(r int) error {
		me := at(r).with(t, given(byte(1+r)), "")
		ctx := ranktest.Timeout(t)
		if r == 0 {
			ctx, me.Logger = ranktest.CancelOn(t, "rendezvous turned connections away")
		}
		_, err := me.join(ctx)
		return err
	})
	require.ErrorContains(t, errs[0], "still missing: rank 1 of 2; turned away: 127.0.0.1:")
	require.ErrorContains(t, errs[0], "the job secret of rank 1 is not that of rank 0")
	require.ErrorIs(t, errs[1], ErrSecret)
}

func TestRejections(t *testing.T) {
	tests := []struct {
		name string
		as   func(s *candidate)
		cond error
		want string
	}{
		{"size", func(s *candidate) { s.Size = 3 }, ErrRefused, "WORLD_SIZE is 2 at rank 0 but 3 at rank 1"},
		{"epoch", func(s *candidate) { s.Epoch = "x/1" }, ErrRefused,
			`rank 0 belongs to run \"\" and rank 1 to \"x/1\"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, port := openStore(t, 2, NewSecret(HandedOut))
			me := candidateOf(1, 2, port)
			tt.as(&me)
			_, err := me.join(ranktest.Timeout(t))
			require.ErrorIs(t, err, tt.cond)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestDuplicateRank(t *testing.T) {
	t.Parallel()
	at, ctx := candidates(t, 3), ranktest.Timeout(t)
	joined, root := awaitJoined(ctx, at)
	ranktest.Each(t, 3, func(r int) error {
		if r == 0 {
			return <-root
		}
		if r == 2 {
			<-joined
			_, err := at(1).join(ctx)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "rank 1 has joined already from 127.0.0.1:") {
				return fmt.Errorf("a second rank 1: %w", err)
			}
		}
		b, err := at(r).join(ctx)
		if err == nil {
			err = b.Close()
		}
		return err
	})
}

// TestDuplicateOfARunningJob: another process of a rank, as a child of it is, fails soon. It may
// also be a rank of the next job, whose rank 0 is not there yet: one of another size, or one that
// has left this job.
func TestDuplicateOfARunningJob(t *testing.T) {
	t.Parallel()
	list := startJob(t, 3, Secret{}, "")
	port := portOf(list[0])
	_, err := candidateOf(1, 3, port).join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "rank 1 has joined already from 127.0.0.1:")
	require.ErrorContains(t, err, "TAGMATCH_BOOTSTRAP=singleton")
	ctx := ranktest.Timeout(t)
	ranktest.Each(t, 3, func(r int) error { return list[r].Fence(ctx) })
	require.NoError(t, list[1].Close())
	for size, want := range map[int]string{3: "rank 1 has left this job, which has not ended yet", 4: "WORLD_SIZE is 3 at rank 0 but 4 at rank 1"} {
		me := candidateOf(1, size, port)
		ctx, logger := ranktest.CancelOn(t, "rendezvous: trying again")
		me.Logger = logger
		_, err := me.join(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, want)
	}
}

// TestChildWithoutTheSecret: a child of a rank, which does not inherit the job's secret, and takes
// itself for the rank, fails soon, and learns what to do.
func TestChildWithoutTheSecret(t *testing.T) {
	t.Parallel()
	list := startJob(t, 3, given(0x5a), "")
	port := portOf(list[0])
	_, err := candidateOf(1, 3, port).join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrSecret)
	require.ErrorContains(t, err, "a program that a rank starts does not get it: give it TAGMATCH_BOOTSTRAP=singleton")
	_, err = candidateOf(1, 3, port).with(t, given(0x5a), "").join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "rank 1 has joined already from 127.0.0.1:")
}

// TestRestartedRank: a rank that was lost is not taken back, and hears so at once; after an Abort
// it may be one of the next job.
func TestRestartedRank(t *testing.T) {
	for name, abort := range map[string]bool{"lost": false, "aborted": true} {
		t.Run(name, func(t *testing.T) {
			list := startJob(t, 2, Secret{}, "")
			port := portOf(list[0])
			if abort {
				list[0].Abort(3, "enough")
				<-list[1].Aborted()
			}
			require.NoError(t, list[1].up.(*wireLink).f.conn.Close())
			require.Equal(t, 1, nextLoss(t, list[0]).Rank)
			me := candidateOf(1, 2, port)
			ctx := ranktest.Timeout(t)
			if abort {
				ctx, me.Logger = ranktest.CancelOn(t, "rendezvous: trying again")
			}
			_, err := me.join(ctx)
			if abort {
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "rank 1 has left this job, which has not ended yet")
				return
			}
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "and a job takes no rank back: start all ranks again")
		})
	}
}

func TestOtherVersion(t *testing.T) {
	_, port := openStore(t, 2, NewSecret(HandedOut))
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(be.AppendUint32([]byte(magic), protocolVersion+1))
	require.NoError(t, err)
	f := newFramer(conn)
	v, err := f.readPreface()
	require.NoError(t, err)
	require.EqualValues(t, protocolVersion, v)
	_, err = expect[*challengeMsg](f, maxHandshake)
	require.ErrorIs(t, err, ErrVersion)
	require.ErrorContains(t, err, "rank 0 speaks version 7 of the rendezvous protocol and the dialing rank version 8")
}

// fakeRoot answers one connection with answer after the dialing rank has spoken.
func fakeRoot(t *testing.T, answer []byte) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1024))
		_, _ = conn.Write(answer)
		_, _ = io.Copy(io.Discard, conn)
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

func TestOddRoots(t *testing.T) {
	tests := []struct {
		name, answer string
		cond         error
		want         string
	}{
		{"another program", "HTTP/1.1 400 Bad Request\r\n\r\n", ErrProtocol, "another program listens there"},
		{"another version", string(be.AppendUint32([]byte(magic), 9)) + "\x00\x00\x00\x01\x63", ErrVersion, "rank 0 speaks version 9"},
		{"long frame", string(be.AppendUint32([]byte(magic), protocolVersion)) + "\xff\xff\xff\xff\x02", ErrProtocol, "at most 1024 are allowed"},
		{"frame out of turn", string(be.AppendUint32([]byte(magic), protocolVersion)) + "\x00\x00\x00\x02\x0b\x00", ErrProtocol, "BYE frame where CHALLENGE belongs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			port := fakeRoot(t, []byte(tt.answer))
			_, err := candidateOf(1, 2, port).join(ranktest.Timeout(t))
			require.ErrorIs(t, err, tt.cond)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestGarbage sends random bytes to the rendezvous while a job starts and runs.
func TestGarbage(t *testing.T) {
	at := candidates(t, 4)
	port := at(0).port
	ctx, cancel := context.WithCancel(ranktest.Timeout(t))
	defer cancel()
	done, thrown := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			throwGarbage(port, i)
			select {
			case thrown <- struct{}{}: // a rank waits until more was thrown
			case <-time.After(time.Millisecond):
			}
		}
	}()
	list := make([]*Endpoint, 4)
	ranktest.Each(t, 4, func(r int) (err error) {
		for range 5 * r {
			if err := ranktest.Within(ctx, thrown); err != nil {
				return err
			}
		}
		list[r], err = at(r).with(t, given(0x5a), "").join(ctx)
		return err
	})
	ranktest.Each(t, 4, func(r int) error { return exchangeRound(ctx, list[r], 0) })
	cancel()
	<-done
	closeAll(t, list)
}

func throwGarbage(port string, i int) {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return
	}
	defer conn.Close()
	junk := make([]byte, 1<<(i%14))
	rand.Read(junk)
	switch i % 5 {
	case 0:
		_, _ = conn.Write(junk)
	case 1:
		_, _ = conn.Write(append(bytes.Clone(preface), junk...))
	case 2:
		_, _ = conn.Write(append(bytes.Clone(preface), 0xff, 0xff, 0xff, 0xff, byte(kindHello)))
	case 3:
		f := newFramer(conn)
		_ = f.greet(&helloMsg{rank: 1, size: 4, secret: true})
		_ = f.write(&proofMsg{})
	case 4: // nothing at all
	}
}

// TestSilentConnections: silent connections are closed at the deadline, and hold no slot for
// longer.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	_, port := openStore(t, 2, NewSecret("test"))
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	require.NoError(t, err)
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(testlevel.Patience(10 * time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// kill ends a rank as a killed process ends: its connection closes without a BYE.
func kill(b *Endpoint) { b.up.(*wireLink).f.conn.Close() }

func TestKilledPeer(t *testing.T) {
	list := startJob(t, 4, Secret{}, "")
	ctx := ranktest.Timeout(t)
	ranktest.Each(t, 4, func(r int) error { return list[r].Fence(ctx) })
	errs := ranktest.Outcomes(4, func(r int) error {
		if r == 2 {
			err := awaitArrival(hubOf(list[0]), 3)
			kill(list[2])
			return err
		}
		return list[r].Fence(ctx)
	})
	for _, r := range []int{0, 1, 3} {
		require.ErrorIs(t, errs[r], ErrPeerLost)
		require.ErrorContains(t, errs[r], "rank 2 was lost: its process ended")
	}
	_, err := list[1].Get(ctx, 0, "nothing")
	require.ErrorIs(t, err, ErrNotFound, "what has been exchanged stays readable")
}

func TestKilledRoot(t *testing.T) {
	list := startJob(t, 3, Secret{}, "")
	h := list[0].up.(*rootLink).hub
	h.seats[1].member.(*remote).f.conn.Close()
	err := list[1].Fence(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorContains(t, err, "rank 0 was lost")
}

// TestRootKilledAfterFence ends rank 0 right after its fence: the others' fence completes too.
func TestRootKilledAfterFence(t *testing.T) {
	for range 20 {
		list := startJob(t, 5, Secret{}, "")
		ctx := ranktest.Timeout(t)
		h := hubOf(list[0])
		h.flushFor = 20 * time.Second
		ranktest.Each(t, 5, func(r int) error {
			err := list[r].Fence(ctx)
			if r != 0 {
				return err
			}
			for _, s := range h.seats[1:] { // no rank joins any more
				err = errors.Join(err, s.member.(*remote).f.conn.Close())
			}
			return err
		})
	}
}

// TestRestartBeforeStart: a rank dies and comes back before all ranks have joined.
func TestRestartBeforeStart(t *testing.T) {
	h, port := openStore(t, 3, NewSecret(HandedOut))
	ctx, die := context.WithCancel(ranktest.Timeout(t))
	died := make(chan error)
	go func() {
		_, err := candidateOf(1, 3, port).join(ctx)
		died <- err
	}()
	require.Eventually(t, func() bool { return strings.Contains(h.absent(), "missing: rank 2 of 3") }, testlevel.Patience(30*time.Second), time.Millisecond)
	die()
	require.ErrorIs(t, <-died, context.Canceled)
	require.Eventually(t, func() bool { return strings.Contains(h.absent(), "ranks 1, 2 of 3") }, testlevel.Patience(30*time.Second), time.Millisecond)
	list := make([]*Endpoint, 2)
	ranktest.Each(t, 2, func(i int) (err error) {
		list[i], err = candidateOf(i+1, 3, port).join(ranktest.Timeout(t))
		return err
	})
	closeAll(t, list)
}

// TestTamperedFrame flips a bit after the handshake, as a relay of the connection could.
func TestTamperedFrame(t *testing.T) {
	sec := NewSecret("test")
	_, port := openStore(t, 2, sec)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		passOn(ln, "127.0.0.1:"+port)
	}()
	_, via, _ := net.SplitHostPort(ln.Addr().String())
	me := candidateOf(1, 2, via)
	me.secret = sec
	_, err = me.join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, "WELCOME frame with a wrong MAC")
	<-done
}

// passOn forwards one connection and flips a bit in the first frame after ACCEPT.
func passOn(ln net.Listener, to string) {
	in, err := ln.Accept()
	if err != nil {
		return
	}
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.CopyN(in, out, int64(prefaceSize+headerSize+nonceSize+headerSize+macSize))
	frame := make([]byte, headerSize+jobIDSize)
	_, _ = io.ReadFull(out, frame)
	frame[headerSize+3] ^= 1
	_, _ = in.Write(frame)
	_, _ = io.Copy(in, out)
}

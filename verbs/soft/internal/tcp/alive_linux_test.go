package tcp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// halfDeaf makes two devices with a connection of which b receives nothing, though a hears b.
func halfDeaf(t *testing.T) (a, b *fakeDevice, ab, ba *link) {
	a, b, ab, ba = joined(t, func(env *wire.Env, _ *string) { env.PeerTimeout = keepalive.Min })
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	require.NoError(t, unix.SetsockoptSockFprog(ba.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing[0]}))
	for _, l := range []*link{ab, ba} { // whose probes the host of a socket that is gone would answer
		require.NoError(t, unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0))
	}
	return a, b, ab, ba
}

// slowly is until that looks once a millisecond.
func slowly(t *testing.T, what string, cond func() bool, devices ...*fakeDevice) {
	t.Helper()
	until(t, what, func() bool { time.Sleep(time.Millisecond); return cond() }, devices...)
}

// TestTCPMute: a device that is not heard finds that by itself, however much it hears.
func TestTCPMute(t *testing.T) {
	t.Parallel()
	a, _, ab, ba := halfDeaf(t)
	require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	var heard time.Time
	slowly(t, "silence", func() bool {
		if time.Since(heard) > keepalive.Min/looks { // a new segment before each look
			heard = time.Now()
			inject(t, ba, appendFrameHeader(nil, &wire.Header{Op: wire.OpAck}))
		}
		return len(a.down) == 1
	}, a)
	require.ErrorIs(t, a.down[0], unix.ETIMEDOUT)
}

// TestTCPDeaf: a device that hears nothing tells its peer, which hears it, that it has given up.
func TestTCPDeaf(t *testing.T) {
	t.Parallel()
	a, b, _, ba := halfDeaf(t)
	require.True(t, ba.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	slowly(t, "the end of both links", func() bool { return len(a.down) == 1 && len(b.down) == 1 }, a, b)
	require.ErrorIs(t, b.down[0], unix.ETIMEDOUT)
	require.ErrorIs(t, a.down[0], unix.ECONNRESET)
}

// TestTCPSilentBefore: silence counts from when it began, also where nothing was sent then.
func TestTCPSilentBefore(t *testing.T) {
	t.Parallel()
	a, _, ab, _ := halfDeaf(t)
	slowly(t, "silence of an idle link", func() bool { return ab.silent > looks/2 }, a)
	require.Empty(t, a.down)
	require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	slowly(t, "the end of the link", func() bool {
		require.Greater(t, ab.silent, looks/2, "what is sent begins it again")
		return len(a.down) == 1
	}, a)
}

// TestTCPRepeated: silence counts where data was sent again after an interruption of half of
// PeerTimeout, and its acknowledgement could be here.
func TestTCPRepeated(t *testing.T) {
	const every = keepalive.Min / looks
	l := &link{w: &Wire{env: wire.Env{PeerTimeout: keepalive.Min}}, silent: mostSilent}
	for _, c := range []struct {
		unacked uint32
		ago     time.Duration
		want    bool
	}{
		{1, every / 2, false}, {1, every, false}, {1, every + time.Millisecond, true},
		{1, (mostSilent - looks/2) * every, true}, {1, (mostSilent-looks/2)*every + time.Millisecond, false}, {0, time.Hour, true},
	} {
		info := &unix.TCPInfo{Unacked: c.unacked, Last_data_sent: uint32(c.ago / time.Millisecond)}
		require.Equal(t, c.want, l.repeated(info), "%+v", c)
	}
}

package p2p_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestHugeMessage receives a message of more than 4 GiB whole at level ci, by each transport and
// over each wire, without the memory for it: what it has between its islands, parts that are
// compared byte by byte, are zeros. Elsewhere it is smaller, as in builds with -tags invariants,
// which hash each message.
func TestHugeMessage(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		boundary := 16 << 20
		whole := strings.HasSuffix(t.Name(), "rc/loop") || strings.HasSuffix(t.Name(), "tmsrq/shm") || strings.HasSuffix(t.Name(), "rc/tcp")
		if testlevel.CI() && !invariant.Enabled && whole {
			boundary = 4 << 30
		}
		message, _ := holey(t, boundary)
		message = message[:boundary+island/2+5]
		buf, sink := holey(t, boundary)
		want, got := islands(message, boundary), islands(buf, boundary)
		for i := range want {
			copy(want[i], pattern(len(want[i]), i))
		}
		for _, b := range append(got, sink) {
			copy(b, fresh(len(b)))
		}
		r := ws[1].Comm().Irecv(0, 1, buf)
		require.NoError(t, ws[0].Comm().Send(background, 1, 1, message))
		require.Equal(t, p2p.Status{Source: 0, Tag: 1, Len: int64(len(message))}, wait(t, r))
		for i := range want {
			requireBytes(t, want[i], got[i][:len(want[i])])
			rest := got[i][len(want[i]):]
			requireBytes(t, fresh(len(rest)), rest)
		}
		requireBytes(t, make([]byte, len(sink)), sink)
	})
}

const island = 1 << 20

// islands are the parts of b that have memory of their own: its beginning, what is around the
// middle of boundary, and from below boundary to the end.
func islands(b []byte, boundary int) [][]byte {
	return [][]byte{b[:island], b[boundary/2-island/2:][:island], b[boundary-island/2:]}
}

// holey maps a buffer that goes beyond boundary. Between its islands it has the same memory again
// and again, which is sink.
func holey(t *testing.T, boundary int) (buf, sink []byte) {
	fd, err := unix.MemfdCreate("sink", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, 2*island))
	sink, err = unix.Mmap(fd, 0, 2*island, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(sink)) })
	buf = sparse(t, boundary+island)
	for _, hole := range [][]byte{buf[island : boundary/2-island/2], buf[boundary/2+island/2 : boundary-island/2]} {
		for len(hole) > 0 {
			n := min(len(hole), len(sink))
			_, _, errno := unix.Syscall6(unix.SYS_MMAP, reflect.ValueOf(hole).Pointer(), uintptr(n),
				unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_POPULATE, uintptr(fd), 0)
			require.Zero(t, errno)
			hole = hole[n:]
		}
	}
	return buf, sink
}

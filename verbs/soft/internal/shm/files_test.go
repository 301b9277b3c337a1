//go:build linux

package shm

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/userfault"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

const (
	mountsText = `22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
25 1 254:2 / / rw,relatime shared:1 - ext4 /dev/root rw
30 25 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw
41 25 0:300 /home /home rw - nfs4 server:/home rw,vers=4.2
`
	mapsText = `00400000-00500000 r-xp 00000000 fe:02 1234                               /usr/bin/program
00500000-00600000 rw-p 00000000 00:00 0
00600000-00700000 rw-p 00000000 00:00 0                                  [heap]
00800000-00900000 rw-s 00000000 00:01 1034                               /memfd:buffer (deleted)
00900000-00a00000 rw-s 00000000 00:19 7                                  /dev/shm/buffer
00a00000-00b00000 rw-s 00000000 00:12c 99                                /home/me/data
00b00000-00c00000 rw-p 00000000 00:00 0
00d00000-00e00000 r--s 00000000 00:77 3                                  /gone/data
`
)

func TestFilesAreFound(t *testing.T) {
	list := parseMaps(mapsText, parseMounts(mountsText))
	require.Equal(t, []span{
		{0x400000, 0x500000, true}, {0x500000, 0x700000, false}, {0x800000, 0xa00000, false}, {0xa00000, 0xb00000, true}, {0xb00000, 0xc00000, false},
		{0xd00000, 0xe00000, true},
	}, list)
	for _, c := range []struct {
		lo, hi       uint64
		waits, known bool
	}{
		{0x500000, 0x500001, false, true}, {0x5fffff, 0x600001, false, true}, {0x600000, 0x700000, false, true},
		{0x4fffff, 0x500001, true, true}, {0x9fffff, 0xb00001, true, true}, {0xafffff, 0xb00000, true, true}, {0xb00000, 0xc00000, false, true},
		{0x6fffff, 0x700001, false, false}, {0x780000, 0x800001, false, false}, {0, 1, false, false}, {0xc00000, 0xc00001, false, false},
	} {
		waits, known := find(list, c.lo, c.hi)
		require.Equal(t, c.waits, waits, "%+v", c)
		require.Equal(t, c.known, known, "%+v", c)
	}
}

// TestFilesOfThisProcess looks again where it meets memory that was not there before.
func TestFilesOfThisProcess(t *testing.T) {
	require.False(t, mayWait(make([]byte, 1<<20)))
	private, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(private)) }()
	require.False(t, mayWait(private))
	f, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	before := look()
	text, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(text)) }()
	spans.Store(&before)
	mayWait(text) // true unless the program lies in memory
	lo := mem.AddrOf(text)
	_, known := find(*spans.Load(), lo, lo+1<<20)
	require.True(t, known, "a mapping that is new")
}

// TestServedPages: memory that userfaultfd serves is found, and no other.
func TestServedPages(t *testing.T) {
	const smaps = `00500000-00600000 rw-p 00000000 00:00 0
Size:               1024 kB
VmFlags: rd wr mr mw me ac sd
00600000-00700000 rw-p 00000000 00:00 0
Size:               1024 kB
VmFlags: rd wr mr mw me ac um sd
00700000-00800000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac uw sd
`
	require.Equal(t, []span{{0x500000, 0x600000, false}, {0x600000, 0x800000, true}}, parseMaps(smaps, nil))

	require.False(t, servesPages())
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	fd, err := userfault.Forget(mem[:1<<19])
	if err != nil {
		t.Skip("needs userfaultfd: ", err)
	}
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.True(t, servesPages())
	list := look()
	spans.Store(&list)
	require.True(t, mayWait(mem[:1]))
	require.False(t, mayWait(mem[1<<19:]))
	require.False(t, mayWait(make([]byte, 1<<20)))
}

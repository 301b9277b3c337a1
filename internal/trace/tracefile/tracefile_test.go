package tracefile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/trace"
)

func create(t *testing.T, dir string) *File {
	f, err := Create(dir, "0123abcd", 3)
	require.NoError(t, err)
	require.NoError(t, f.Head(&trace.Answer{Version: trace.Version, Job: "0123abcd", Rank: 3, Size: 4, Program: "p"}))
	return f
}

func write(r trace.Ring, n int) {
	for range n {
		r.Records[*r.Count%uint64(len(r.Records))] = trace.Record{At: int64(*r.Count), Kind: trace.Sent, Peer: -1, Failed: true}
		*r.Count++
	}
}

// TestFile is read while it is written, and after that.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	f := create(t, dir)
	require.Equal(t, dir, filepath.Dir(f.Path()))
	info, err := os.Stat(f.Path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	check := func(n int, lost uint64) {
		a, list, err := Read(f.Path())
		require.NoError(t, err)
		require.Equal(t, trace.Answer{Version: trace.Version, Job: "0123abcd", Rank: 3, Size: 4, Program: "p", Records: n, Lost: lost}, a)
		require.Len(t, list, n)
		for i, r := range list {
			require.Equal(t, trace.Record{At: int64(lost) + int64(i), Kind: trace.Sent, Peer: -1, Failed: true}, r)
		}
	}
	check(0, 0)
	write(f.Ring, 100)
	check(100, 0)
	write(f.Ring, Records)
	check(Records, 100)
	require.NoError(t, f.Close(true))
	check(Records, 100)

	_, err = Create(dir, "0123abcd", 3)
	require.ErrorIs(t, err, os.ErrExist, "what a rank has left is not overwritten")
	require.NoError(t, os.Remove(f.Path()))
	f = create(t, dir)
	require.NoError(t, f.Close(false))
	require.NoFileExists(t, f.Path())
}

// TestReadMeanwhile: of a file that is read while records are written those that were replaced
// meanwhile are left out.
func TestReadMeanwhile(t *testing.T) {
	f := create(t, t.TempDir())
	const begin = Records + 100
	write(f.Ring, begin)
	for _, meanwhile := range []int{0, 1, 10, 2 * Records} {
		b, err := os.ReadFile(f.Path())
		require.NoError(t, err)
		before := *f.Ring.Count
		write(f.Ring, meanwhile)
		after, err := os.ReadFile(f.Path())
		require.NoError(t, err)
		copy(b[ringAt:], after[ringAt:]) // the count is read first
		a, list, err := parse(b, before+uint64(meanwhile))
		require.NoError(t, err)
		if meanwhile != 0 {
			meanwhile++
		}
		require.Equal(t, max(Records-meanwhile, 0), len(list))
		require.EqualValues(t, before, a.Lost+uint64(a.Records))
		inOrder(t, a, list)
	}

	ended, enough := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		for {
			select {
			case <-enough:
				return
			default:
				write(f.Ring, 50)
				time.Sleep(time.Microsecond)
			}
		}
	}()
	for range 20 {
		a, list, err := Read(f.Path())
		require.NoError(t, err)
		require.Equal(t, len(list), a.Records)
		inOrder(t, a, list[:max(len(list)-1, 0)]) // the last one may be half written
	}
	close(enough)
	<-ended
	require.NoError(t, f.Close(true))
}

// inOrder checks what write has written.
func inOrder(t *testing.T, a trace.Answer, list []trace.Record) {
	for i := range list {
		if list[i].At != int64(a.Lost)+int64(i) {
			require.FailNow(t, "a record is not in its place", "%d: %+v", i, list[i])
		}
	}
}

// TestNoFile: a file that cannot be made leaves nothing.
func TestNoFile(t *testing.T) {
	_, err := Create(filepath.Join(t.TempDir(), "none"), "0123abcd", 3)
	require.ErrorIs(t, err, os.ErrNotExist)
	f := create(t, t.TempDir())
	require.ErrorContains(t, f.Head(&trace.Answer{Program: string(make([]byte, 4<<10))}), "are too many")
	require.NoError(t, f.Close(false))
}

// TestDamaged: a file that is none, or was damaged, is an error that says so.
func TestDamaged(t *testing.T) {
	f := create(t, t.TempDir())
	write(f.Ring, 5)
	require.NoError(t, f.Close(true))
	good, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "f")
	for name, row := range map[string]struct {
		damage func(b []byte) []byte
		says   string
	}{
		"empty":   {func([]byte) []byte { return nil }, "it is no recording of a rank"},
		"short":   {func(b []byte) []byte { return b[:len(b)-1] }, "it is no recording"},
		"mark":    {func(b []byte) []byte { b[0] ^= 1; return b }, "it is no recording"},
		"head":    {func(b []byte) []byte { b[headAt] = '['; return b }, "it is no recording"},
		"no head": {func(b []byte) []byte { clear(b[headAt:ringAt]); return b }, "it is no recording"},
		"count":   {func(b []byte) []byte { b[countAt], b[countAt+7] = 0xff, 0xff; return b }, "it cannot have 18374686479671623935 records"},
		"kind":    {func(b []byte) []byte { b[ringAt+54] = 0xff; return b }, "record 0 is damaged"},
		"bool":    {func(b []byte) []byte { b[ringAt+3*trace.Size+55] = 2; return b }, "record 3 is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, row.damage(append([]byte(nil), good...)), 0o600))
			_, _, err := Read(path)
			require.ErrorContains(t, err, path+": "+row.says)
		})
	}
	_, _, err = Read("/dev/zero")
	require.ErrorIs(t, err, errForeign, "it has no end")
	_, _, err = Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

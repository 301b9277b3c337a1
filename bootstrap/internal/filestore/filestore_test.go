package filestore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string, rank int) *Store {
	t.Helper()
	s, err := Open(dir, "job/1", space.Identity{Rank: rank, Size: 4, LocalRank: -1, LocalSize: -1})
	require.NoError(t, err)
	return s
}

// TestBroadcast: readers that come before and after rank 0, again and again under one name.
func TestBroadcast(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for round := range 20 {
		value := bytes.Repeat([]byte{byte(round), 0, '\n'}, 1+round*60)
		stores, got, errs := make([]*Store, 4), make([][]byte, 4), make([]error, 4)
		for r := range stores {
			stores[r] = open(t, dir, r)
		}
		broadcast := func(r int) { got[r], errs[r] = stores[r].Broadcast(context.Background(), value) }
		var early sync.WaitGroup
		for _, r := range []int{1, 2} {
			early.Go(func() { broadcast(r) })
		}
		if round%2 == 0 {
			runtime.Gosched()
		}
		broadcast(0)
		broadcast(3)
		early.Wait()
		require.NoError(t, errors.Join(errs...))
		for _, v := range got {
			require.Equal(t, value, v)
		}
		if round%2 == 0 {
			stores[0].Joined()
			require.NoFileExists(t, stores[0].path)
		}
		for _, s := range stores {
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	st, err := os.Stat(dir)
	require.NoError(t, err)
	require.EqualValues(t, 0o700, st.Mode().Perm())
}

// TestTwoJobs: the second job of a name does not take the place of the first.
func TestTwoJobs(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, dir, 0), open(t, dir, 0)
	_, err := first.Broadcast(context.Background(), []byte("first"))
	require.NoError(t, err)
	_, err = second.Broadcast(context.Background(), []byte("second"))
	require.ErrorContains(t, err, "exists: another job of the same name runs")
	require.NoError(t, second.Close())
	got, err := open(t, dir, 1).Broadcast(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	require.NoError(t, first.Close())
}

// TestPartial: a file that is not whole yet, as a network file system may show, is not read.
func TestPartial(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	_, err := s.Broadcast(context.Background(), []byte("the value"))
	require.NoError(t, err)
	whole, err := os.ReadFile(s.path)
	require.NoError(t, err)
	for _, part := range [][]byte{nil, whole[:5], whole[:32], whole[:len(whole)-1], append([]byte{1}, whole[1:]...)} {
		require.NoError(t, os.WriteFile(s.path, part, 0o600))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_, err = open(t, dir, 1).Broadcast(ctx, nil)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, s.path)
	}
	require.NoError(t, os.WriteFile(s.path, whole, 0o600))
	got, err := open(t, dir, 1).Broadcast(context.Background(), nil)
	require.NoError(t, err)
	require.Equal(t, "the value", string(got))
	require.NoError(t, s.Close())
}

func TestWrongDirectories(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o770))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(open, link))
	toPrivate := filepath.Join(dir, "private")
	require.NoError(t, os.Symlink(dir, toPrivate))
	_, err := Open(toPrivate, "job", space.Identity{Size: 1})
	require.NoError(t, err, "a link to a private directory")
	for path, want := range map[string]string{
		open: "can be written to by others", file: "not a directory", link: "can be written to by others", file + "/x": "not a directory",
	} {
		_, err := Open(path, "job", space.Identity{Size: 1})
		require.ErrorContains(t, err, want, path)
	}
	if os.Getuid() == 0 {
		require.NoError(t, os.Chmod(open, 0o700))
		require.NoError(t, os.Chown(open, 1234, 0))
		_, err := Open(open, "job", space.Identity{Size: 1})
		require.ErrorContains(t, err, "belongs to user 1234, this process to user 0")
	}
	for _, n := range []int{0, space.MaxValue + 1} {
		s, err := Open(dir, "job", space.Identity{Size: 1})
		require.NoError(t, err)
		_, err = s.Broadcast(context.Background(), make([]byte, n))
		require.ErrorContains(t, err, "1 to 4096")
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/tracetest"
	"github.com/tagmatch/tagmatch/internal/trace/tracing"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestTrace traces this process, which is a job of one rank and sends to itself.
func TestTrace(t *testing.T) {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	names, err := doors.Find()
	require.NoError(t, err)
	job := names[slices.IndexFunc(names, func(n doors.Name) bool { return n.PID == os.Getpid() })].Job
	path := filepath.Join(t.TempDir(), "t.json")

	ended := make(chan error)
	stop, cancel := context.WithCancel(context.Background())
	go func() {
		var err error
		for err == nil && stop.Err() == nil {
			err = w.Comm().Send(stop, 0, 7, []byte("secret"))
			if err == nil {
				_, err = w.Comm().Recv(context.Background(), 0, 7, make([]byte, 6))
			}
		}
		ended <- err
	}()
	code, out, errs := command("trace", job, "--for", "50ms", "-o", path, "--records", "1000")
	cancel()
	err = <-ended
	require.True(t, err == nil || errors.Is(err, context.Canceled), err)
	require.Zero(t, code, errs)
	require.Empty(t, out, "the file could be there")
	require.Contains(t, errs, path+": job "+job+", 1 of 1 ranks, ")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(data), "secret")
	f, err := tracetest.Check(data)
	require.NoError(t, err)
	require.Positive(t, f.Arrows)
	require.Equal(t, job, f.About["job"])

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"trace", job, "-o", t.TempDir()}, exitFailed, "is a directory: name a file that can be written with -o\n"},
		{[]string{"trace", job, "--for", "-1s"}, exitUsage, "--for -1s: give a time above 0"},
		{[]string{"trace", job, "--records", "0"}, exitUsage, "--records 0: give 1 to 4194304\n"},
		{[]string{"trace", job, "-o", filepath.Join(t.TempDir(), "x", "y")}, exitFailed, "no such file or directory: name a file"},
		{[]string{"trace", job, "--for", "600h"}, exitUsage, "--for 600h0m0s: give a time above 0, such as 5s, and up to 1h0m0s\n"},
	} {
		code, _, errs = command(c.args...)
		require.Equal(t, c.code, code, errs)
		require.True(t, strings.Contains(errs, c.says), errs)
	}
}

// TestTraceFile: a trace that fails leaves what there was, and no empty file. An interrupt ends the
// recording, which then replaces what there was.
func TestTraceFile(t *testing.T) {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	job := w.Metrics().Job
	dir := t.TempDir()
	path, link, held := filepath.Join(dir, "t.json"), filepath.Join(dir, "null"), filepath.Join(dir, "held")
	old := strings.Repeat("{", 1<<20)
	require.NoError(t, os.WriteFile(held, []byte(old), 0o600))
	require.NoError(t, os.Symlink(os.DevNull, link))
	names, err := doors.Find()
	require.NoError(t, err)
	names, err = ofJob(names, job)
	require.NoError(t, err)
	recording, err := tracing.Begin(context.Background(), names, trace.Longest, 1)
	require.NoError(t, err)
	for _, p := range []string{path, link, held} {
		code, _, errs := command("trace", job, "-o", p)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "it is traced already")
	}
	_, err = recording.End(context.Background())
	require.NoError(t, err)
	require.NoFileExists(t, path)
	_, err = os.Lstat(link)
	require.NoError(t, err)
	data, err := os.ReadFile(held)
	require.NoError(t, err)
	require.Equal(t, old, string(data))

	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT) // which ends this process otherwise
	defer signal.Reset(syscall.SIGINT)
	over := make(chan bool)
	go func() {
		defer close(over)
		code, _, errs := command("trace", job, "--for", "10m", "-o", held)
		assert.Zero(t, code, errs)
	}()
	for going := true; going; {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		select {
		case <-over:
			going = false
		case <-time.After(10 * time.Millisecond):
		}
	}
	data, err = os.ReadFile(held)
	require.NoError(t, err)
	_, err = tracetest.Check(data)
	require.NoError(t, err)
}

// TestTraceRead: what a rank has recorded by itself is read while it runs, and after its end.
func TestTraceRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TAGMATCH_TRACE", "ring:"+dir)
	w, err := p2p.Init(context.Background(), p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	for tag := range p2p.Tag(10) {
		require.NoError(t, w.Comm().Send(context.Background(), 0, tag, []byte("x")))
		_, err = w.Comm().Recv(context.Background(), 0, tag, make([]byte, 1))
		require.NoError(t, err)
	}
	path := filepath.Join(dir, "t.json")
	read := func() {
		code, _, out := command("trace", "--read", files[0], "-o", path)
		require.Zero(t, code, out)
		require.Equal(t, path+": job "+w.Metrics().Job+", 1 of 1 ranks, 10 messages\n", out)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		f, err := tracetest.Check(data)
		require.NoError(t, err)
		require.Equal(t, 10, f.Arrows)
		require.Contains(t, string(data), `"comm":"World"`)
	}
	read()
	code, _, errs := command("trace", w.Metrics().Job, "-o", path)
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "rank 0: TAGMATCH_TRACE has it record into "+files[0]+": tagmatch trace --read shows that, also while it runs\n")
	require.NoError(t, w.Close())
	read()

	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"trace", "--read"}, exitUsage, "--read: name the files that the ranks of a job have left\n"},
		{[]string{"trace", "--read", files[0], "--for", "1s"}, exitUsage, "[for read]"},
		{[]string{"trace", "--read", files[0], files[0], "-o", path}, exitFailed, "are both of rank 0: give the files of one run\n"},
		{[]string{"trace", "--read", path, "-o", path + "2"}, exitFailed, path + ": it is no recording of a rank"},
	} {
		code, _, errs := command(c.args...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, errs, c.says)
	}
	require.NoFileExists(t, path+"2")
}

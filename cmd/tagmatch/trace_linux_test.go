package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	require.Contains(t, out, path+": job "+job+", 1 ranks, ")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(data), "secret")
	f, err := tracetest.Check(data)
	require.NoError(t, err)
	require.Positive(t, f.Arrows)
	require.Equal(t, job, f.About["job"])

	names, err = ofJob(names, job)
	require.NoError(t, err)
	require.NoError(t, tracing.Begin(context.Background(), names, trace.Longest, 1))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"trace", job, "-o", t.TempDir()}, exitFailed, "is a directory"},
		{[]string{"trace", job, "--for", "-1s"}, exitUsage, "--for takes a time above 0"},
		{[]string{"trace", job, "--records", "0"}, exitUsage, "--records 1 to 4194304"},
		{[]string{"trace", job, "--for", "600h"}, exitUsage, "--for takes a time above 0, up to 1h0m0s"},
		{[]string{"trace", job, "-o", path}, exitFailed, "it is traced already"},
	} {
		code, _, errs = command(c.args...)
		require.Equal(t, c.code, code, errs)
		require.True(t, strings.Contains(errs, c.says), errs)
	}
	require.NoFileExists(t, path)
	_, err = tracing.End(context.Background(), names)
	require.NoError(t, err)
}

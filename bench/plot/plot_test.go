package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func files() []string { return []string{"testdata/compare.json", "testdata/more.json"} }

func TestRead(t *testing.T) {
	c := charts{}
	for _, name := range files() {
		require.NoError(t, readFile(c, name))
	}
	type points = map[float64]float64
	require.Equal(t, map[string]points{"tagmatch": {8: 0.2, 64: 0.25, 1024: 0.4}, "ucx": {8: 0.1, 1024: 0.3}}, c["latency-shm"].series)
	require.Equal(t, map[string]float64{"raw limit: a line of shared memory, 8 B": 0.08}, c["latency-shm"].limits)
	require.Equal(t, map[string]points{"tagmatch": {8: 5.5}}, c["latency-tcp"].series, "0 bytes are not on a logarithmic axis")
	require.Equal(t, map[string]points{"tagmatch": {65536: 9}, "default": {65536: 4}, "mpich": {65536: 8}, "raw limit: both sides copy": {65536: 17.8},
		"raw limit: one side copies": {65536: 11.3}}, c["bandwidth-shm"].series)
	require.Equal(t, map[string]points{"tagmatch": {65536: 5}}, c["bandwidth-shm-cold"].series)
	require.Equal(t, map[string]points{"tagmatch": {65536: 9.5}}, c["bandwidth-shm-sliding"].series)
	require.Equal(t, map[string]points{"tagmatch": {16: 0.22, 10000: 0.25, 100000: 0.3}, "mpich": {10000: 50}}, c["depth-posted"].series)
	var names []string
	for _, one := range c.sorted() {
		names = append(names, one.name)
	}
	require.Equal(t, []string{"tagmatch", "default", "mpich", "raw limit: both sides copy", "raw limit: one side copies"}, c["bandwidth-shm"].names())
	require.Equal(t, []string{"bandwidth-shm", "bandwidth-shm-cold", "bandwidth-shm-sliding", "bandwidth-tcp", "depth-posted", "latency-shm", "latency-tcp"}, names)
}

func TestReadFails(t *testing.T) {
	require.ErrorContains(t, charts{}.read(strings.NewReader("{}\nSegmentation fault\n")), "line 2 is not what bench prints with -json")
	require.Error(t, readFile(charts{}, filepath.Join(t.TempDir(), "none")))
}

func TestPictures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(append([]string{"-out", dir}, files()...), &stdout, &stderr), stderr.String())
	require.Equal(t, 14, strings.Count(stdout.String(), "\n"))
	svg, err := os.ReadFile(filepath.Join(dir, "latency-shm.svg"))
	require.NoError(t, err)
	for _, text := range []string{"<svg", "tagmatch", "UCX", "raw limit: a line of shared memory, 8 B", "message size", ">512<"} {
		require.Contains(t, string(svg), text)
	}
	f, err := os.Open(filepath.Join(dir, "depth-posted.png"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	image, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, image.Bounds().Dx(), 400)
}

func TestUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, 2, run(nil, &stdout, &stderr))
	require.Contains(t, stderr.String(), "usage: plot")
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	stderr.Reset()
	require.Equal(t, 1, run([]string{empty}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "there is nothing to draw")
	require.Zero(t, run([]string{"-h"}, &stdout, &stderr))
}

func TestAxis(t *testing.T) {
	sizes, counts := chart{sizes: true}, chart{}
	for _, c := range []struct {
		chart *chart
		x     float64
		want  string
	}{{&sizes, 8, "8"}, {&sizes, 4096, "4k"}, {&sizes, 1 << 20, "1M"}, {&counts, 1000, "1k"}, {&counts, 1e6, "1M"}} {
		require.Equal(t, c.want, c.chart.xName(c.x))
	}
	ticks := sizes.xTicks().Ticks(8, 4096)
	require.Equal(t, []any{8.0, 4096.0, "4k"}, []any{ticks[0].Value, ticks[len(ticks)-1].Value, ticks[len(ticks)-1].Label})
}

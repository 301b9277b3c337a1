package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/top"
)

// ticking samples a job of n ranks, each of which has sent ten messages more by the next sample, a
// second later as they say. It ends when they were sampled so often.
func ticking(n, times int) sampler {
	at, looks := time.Now(), 0
	return func(context.Context) (string, []top.Sample) {
		if looks++; looks > times {
			return "", nil
		}
		var list []top.Sample
		for rank := range n {
			list = append(list, top.Sample{Rank: rank, PID: 1000 - rank, Host: "node1", At: at.Add(time.Duration(looks) * time.Second),
				Counts: top.Counts{Sent: uint64(10 * looks)}})
		}
		return "job 1a2b: prog", list
	}
}

// TestTopJSON: each second but the first is a line, until the job has ended or nobody reads.
func TestTopJSON(t *testing.T) { synctest.Test(t, seconds) }

func seconds(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, topJSON(t.Context(), &b, ticking(3, 3)))
	lines := strings.Split(b.String(), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines[:2] {
		var table top.Table
		require.NoError(t, json.Unmarshal([]byte(line), &table))
		require.Len(t, table.Rows, 3)
		require.Equal(t, 1.0, table.Rows[2].Seconds)
		require.Equal(t, 10.0, table.Rows[2].Sent)
		require.Equal(t, -1, table.Late)
	}
	gone := errors.New("nobody reads")
	require.ErrorIs(t, topJSON(t.Context(), failing{gone}, ticking(1, 1<<30)), gone)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, topJSON(ctx, failing{gone}, ticking(1, 1<<30)))
}

// failing is what cannot be written to.
type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

// TestTopOnce: where there is no terminal the table of one second is printed.
func TestTopOnce(t *testing.T) { synctest.Test(t, testTopOnce) }

func testTopOnce(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, topOnce(t.Context(), &b, ticking(2, 1<<30), top.View{Sort: 1, Width: 80}))
	require.Equal(t, `job 1a2b: prog
sent: 20 msg/s, 0.0 MB/s
   rank     PID   msg/s  MB/s-in MB/s-out  posted  unexp  mem%  dev% wait%  cpu%
      1     999      10      0.0      0.0       0      0     -     -     0     0
      0    1000      10      0.0      0.0       0      0     -     -     0     0
`, b.String())
	require.EqualError(t, topOnce(t.Context(), &b, ticking(2, 1), top.View{}), "the job has ended within the second that it was watched")
	gone := errors.New("nobody reads")
	require.ErrorIs(t, topOnce(t.Context(), failing{gone}, ticking(1, 2), top.View{}), gone)
}

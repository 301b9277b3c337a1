package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/top"
)

// TestTopOfJob: the lines of `tagmatch top --json` add up to what the ranks of a job have moved,
// and name the rank that the other one waits for. They end with the job.
func TestTopOfJob(t *testing.T) {
	ended := make(chan error, 2)
	play := func(out io.Writer, args ...string) {
		var errs strings.Builder
		if code := execute(args, nil, out, &errs); code != 0 {
			ended <- fmt.Errorf("%v ended with code %d: %s", args, code, &errs)
			return
		}
		ended <- nil
	}
	conn, told := steered(t, func() { play(io.Discard, "run", "-n", "2", os.Args[0]) })

	read, write := io.Pipe()
	go play(write, "top", "--json", told.Text())
	lines := json.NewDecoder(read)
	next := func() (table top.Table) {
		require.NoError(t, lines.Decode(&table))
		require.Len(t, table.Rows, 2)
		return table
	}
	for next().Late != 0 { // rank 0 waits to be told, in no call, and rank 1 for rank 0
	}
	var moved [2]top.Rates
	add := func(table top.Table) {
		for rank, r := range table.Rows {
			moved[rank].Sent += r.Seconds * r.Sent
			moved[rank].Received += r.Seconds * r.Received
			moved[rank].SentBytes += r.Seconds * r.SentBytes
			moved[rank].ReceivedBytes += r.Seconds * r.ReceivedBytes
			moved[rank].CPU += r.Seconds * r.CPU
		}
	}
	fmt.Fprintln(conn, "begin")
	for moved[1].ReceivedBytes < 16<<20 {
		add(next())
	}
	fmt.Fprintln(conn, "end")
	require.True(t, told.Scan())
	add(next()) // its samples may be older
	add(next())
	want, err := strconv.ParseFloat(told.Text(), 64)
	require.NoError(t, err)
	require.InDelta(t, want, moved[0].SentBytes, 1)
	require.InDelta(t, want, moved[1].ReceivedBytes, 1)
	require.InDelta(t, moved[0].Sent, moved[1].Received, 0.1)
	require.InDelta(t, 1, moved[0].Received, 0.1)
	require.Positive(t, moved[0].CPU)

	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	go func() { _, _ = io.Copy(io.Discard, read) }() // lines of the end
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, read.Close())
}

package main

import (
	"bufio"
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

// TestTopOfJob: the lines of `tagmatch top --json` add up to what the ranks of a job have moved, and
// name the rank that the other one waits for. They end with the job.
func TestTopOfJob(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	t.Setenv(envMoves, l.Addr().String())
	ended := make(chan error, 2)
	start := func(out io.Writer, args ...string) {
		go func() {
			var errs strings.Builder
			if code := execute(args, nil, out, &errs); code != 0 {
				ended <- fmt.Errorf("%v ended with code %d: %s", args, code, &errs)
				return
			}
			ended <- nil
		}()
	}
	start(io.Discard, "run", "-n", "2", os.Args[0])
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	told := bufio.NewScanner(conn)
	require.True(t, told.Scan())
	job := told.Text()

	read, write := io.Pipe()
	start(write, "top", "--json", job)
	lines := json.NewDecoder(read)
	next := func() (table top.Table) {
		require.NoError(t, lines.Decode(&table))
		require.Len(t, table.Rows, 2)
		return table
	}
	for next().Late != 0 { // rank 0 waits to be told, in no call, and rank 1 for rank 0
	}
	var moved [2]top.Rates
	add := func() {
		for rank, r := range next().Rows {
			moved[rank].Sent += r.Seconds * r.Sent
			moved[rank].Received += r.Seconds * r.Received
			moved[rank].SentBytes += r.Seconds * r.SentBytes
			moved[rank].ReceivedBytes += r.Seconds * r.ReceivedBytes
			moved[rank].CPU += r.Seconds * r.CPU
		}
	}
	fmt.Fprintln(conn, "begin")
	for moved[1].ReceivedBytes == 0 {
		add()
	}
	fmt.Fprintln(conn, "end")
	require.True(t, told.Scan())
	bytes, err := strconv.ParseFloat(told.Text(), 64)
	require.NoError(t, err)
	for range 2 { // the samples of the first may be older
		add()
	}
	require.InEpsilon(t, bytes, moved[0].SentBytes, 1e-6)
	require.InEpsilon(t, bytes, moved[1].ReceivedBytes, 1e-6)
	require.Zero(t, moved[0].ReceivedBytes+moved[1].SentBytes)
	require.InDelta(t, moved[0].Sent+moved[1].Sent, moved[0].Received+moved[1].Received, 0.01)
	require.Positive(t, moved[0].CPU)

	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	go func() { _, _ = io.Copy(io.Discard, read) }() // lines of the end
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, read.Close())
}

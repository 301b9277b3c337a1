package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
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
	t.Setenv(envChild, "moves")
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
	told := bufio.NewReader(conn)
	job, err := told.ReadString('\n')
	require.NoError(t, err)

	read, write := io.Pipe()
	start(write, "top", "--json", strings.TrimSpace(job))
	lines := json.NewDecoder(read)
	next := func() (table top.Table) {
		require.NoError(t, lines.Decode(&table))
		require.Len(t, table.Rows, 2)
		return table
	}
	for next().Late != 0 { // rank 0 waits to be told, in no call, and rank 1 for rank 0
	}
	_, err = conn.Write([]byte{1})
	require.NoError(t, err)
	_, err = told.ReadByte()
	require.NoError(t, err)
	var moved [2]top.Rates
	for range 2 { // the samples of the first may be older
		for rank, r := range next().Rows {
			moved[rank].Sent += r.Seconds * r.Sent
			moved[rank].Received += r.Seconds * r.Received
			moved[rank].SentBytes += r.Seconds * r.SentBytes
			moved[rank].ReceivedBytes += r.Seconds * r.ReceivedBytes
			moved[rank].CPU += r.Seconds * r.CPU
		}
	}
	const messages, bytes = movedSmall + movedLarge, movedSmall*movedSmallBytes + movedLarge*movedLargeBytes
	require.InDelta(t, messages, moved[0].Sent, 0.01)
	require.InDelta(t, messages, moved[1].Received, 0.01)
	require.InDelta(t, bytes, moved[0].SentBytes, 1)
	require.InDelta(t, bytes, moved[1].ReceivedBytes, 1)
	require.Zero(t, moved[0].ReceivedBytes+moved[1].SentBytes)
	require.Positive(t, moved[0].CPU)

	conn.Close()
	go func() { _, _ = io.Copy(io.Discard, read) }() // lines of the end
	for range 2 {
		require.NoError(t, <-ended)
	}
	require.NoError(t, read.Close())
}

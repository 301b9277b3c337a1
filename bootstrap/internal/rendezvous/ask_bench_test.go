package rendezvous

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// othersVar is the port of rank 0: this process then plays all other ranks.
const othersVar = "RENDEZVOUS_OTHERS"

const manyRanks = 1024

// playOthers plays all ranks but rank 0, until the input ends. The question is the length of the
// answer.
func playOthers(port string) {
	list := make([]*Endpoint, manyRanks)
	var joins, leaves sync.WaitGroup
	for r := 1; r < manyRanks; r++ {
		joins.Go(func() {
			c := candidateOf(r, manyRanks, port)
			c.secret = given(0x5a)
			e, err := c.join(context.Background())
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			e.Answer(func(q string) []byte {
				n, _ := strconv.Atoi(q)
				b := make([]byte, n)
				rand.Read(b)
				return b
			})
			list[r] = e
		})
	}
	joins.Wait()
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, e := range list[1:] {
		leaves.Go(func() { _ = e.Close() })
	}
	leaves.Wait()
}

// BenchmarkAsk has a rank ask 1,024, of which rank 0 is this process, and reports the largest
// memory of that. Replies are as long as a state is that has many peers, compressed; or as they may
// be.
func BenchmarkAsk(b *testing.B) {
	ln, port := listen(b)
	others := exec.CommandContext(b.Context(), os.Args[0])
	others.Env, others.Stderr = append(os.Environ(), othersVar+"="+port), os.Stderr
	in, err := others.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, others.Start())
	c := candidateOf(0, manyRanks, port)
	c.ln, c.secret = ln, given(0x5a)
	root, err := c.join(b.Context())
	require.NoError(b, err)
	root.Answer(func(string) []byte { return nil })
	for deaf := true; deaf; { // until all others are ready
		deaf = false
		require.NoError(b, root.Ask(b.Context(), "1", func(r Reply) bool {
			deaf = deaf || r.Why != ""
			return true
		}))
	}
	for _, n := range []int{1 << 10, 8 << 10, MaxReply} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				got := 0
				err := root.Ask(b.Context(), strconv.Itoa(n), func(r Reply) bool {
					got += len(r.Body)
					return true
				})
				require.NoError(b, err)
				require.Equal(b, (manyRanks-1)*n, got)
			}
			b.ReportMetric(float64(peakMemory(b)), "MB")
		})
	}
	require.NoError(b, in.Close())
	require.NoError(b, root.Close())
	require.NoError(b, others.Wait())
}

// peakMemory is the most that this process has had, in MB; 0 where the system does not tell.
func peakMemory(b *testing.B) (mb int) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range bytes.Lines(status) {
		if _, err := fmt.Sscanf(string(line), "VmHWM: %d kB", &mb); err == nil {
			return mb >> 10
		}
	}
	return 0
}

package jobtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

var manyRanks = flag.Int("ranks", 0, "ranks of TestManyRanks; 0: what the level of the tests has")

func init() { roles["ring"] = ringRole }

// TestManyRanks: a rank of many takes descriptors for those that it talks to. It logs what else
// ranks take.
func TestManyRanks(t *testing.T) {
	n := *manyRanks
	switch {
	case n > 0:
	case testlevel.CI() && !invariant.Enabled && !testlevel.Race:
		n = 256
	default:
		n = 24
	}
	before, start := spent(t), time.Now()
	r := job{n: n, role: "ring", device: "auto"}.run(t)
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	most, told := map[bool][3]int{}, 0 // descriptors, KB and KB at the peak, of rank 0 and of all others
	for _, m := range regexp.MustCompile(`\[(\d+)\] has (\d+) descriptors, (\d+) KB, had (\d+)`).FindAllStringSubmatch(r.out, -1) {
		list := most[m[1] == "0"]
		for i := range list {
			list[i] = max(list[i], atoi(t, m[2+i]))
		}
		most[m[1] == "0"] = list
		told++
	}
	require.Equal(t, n, told, r.out)
	t.Logf("%d ranks in %v, %v of processor time each; descriptors, KB, and KB at the peak: rank 0 %d, another one at most %d", n,
		time.Since(start).Round(time.Millisecond), (spent(t)-before)/time.Duration(n), most[true], most[false])
	require.LessOrEqual(t, most[false][0], 40)
	require.LessOrEqual(t, most[true][0], 40+n)
}

func atoi(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

// spent is the processor time of this process and its children that have ended.
func spent(t *testing.T) (d time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		require.NoError(t, syscall.Getrusage(who, &u))
		d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return d
}

// ringRole sends to the next rank, receives from the one before, and says what this process takes.
func ringRole(ctx context.Context, w *p2p.World) error {
	c, n := w.Comm(), w.Size()
	next, previous := (w.Rank()+1)%n, (w.Rank()+n-1)%n
	for round := range 3 {
		out, in := message(w.Rank(), round, 64), make([]byte, 64)
		st, err := c.Sendrecv(ctx, next, 1, out, previous, 1, in)
		if err != nil {
			return err
		}
		if src, seq, ok := parseMessage(in, st); !ok || src != previous || seq != round {
			return fmt.Errorf("message %d of rank %d in round %d from rank %d", seq, src, round, previous)
		}
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB\s+VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	fmt.Printf("[%d] has %d descriptors, %s KB, had %s\n", w.Rank(), len(list)-1, m[2], m[1]) // without that of the list
	return nil
}

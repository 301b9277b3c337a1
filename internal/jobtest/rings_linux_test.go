package jobtest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["rings"] = ringsRole
	roles["memory"] = memoryRole
}

// thousands exchanges blocks of 1,000 bytes with every rank, so many one after the other.
func thousands(ctx context.Context, w *p2p.World, rounds int) error {
	n := w.Size()
	in, out := make([]byte, 1000*n), make([]byte, 1000*n)
	reqs := make([]p2p.Request, 0, 2*n)
	for round := range rounds {
		reqs = reqs[:0]
		for peer := range n {
			reqs = append(reqs, w.Comm().Irecv(peer, p2p.Tag(round), in[1000*peer:][:1000]),
				w.Comm().Isend(peer, p2p.Tag(round), out[1000*peer:][:1000]))
		}
		if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// ringsRole exchanges argVar blocks with every rank and looks at the memory of its rings, of which
// it has two for each peer.
func ringsRole(ctx context.Context, w *p2p.World) error {
	if err := thousands(ctx, w, int(number(argVar))); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return err
	}
	rings, kib := 0, 0
	for _, part := range regexp.MustCompile(`memfd:tagmatch-ring .*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB`).FindAllSubmatch(maps, -1) {
		k, err := strconv.Atoi(string(part[1]))
		if err != nil {
			return err
		}
		rings, kib = rings+1, kib+k
	}
	if want := 2 * (w.Size() - 1); rings != want {
		return fmt.Errorf("%d rings are mapped, want %d", rings, want)
	}
	if most := (shmring.First(256<<10) + 2*os.Getpagesize()) >> 10; kib > rings*most && memfd.CanReserve() {
		return fmt.Errorf("%d rings take %d KiB: want at most %d each", rings, kib, most)
	}
	return nil
}

// TestRingsStaySmall: short messages between all ranks leave each of their many rings at what it
// began with.
func TestRingsStaySmall(t *testing.T) {
	job{n: 12, role: "rings", device: "shm", arg: 100}.succeed(t)
}

// memoryRole exchanges argVar blocks with every rank, and says for how much memory this process
// accounts while all are there: of pages that several have it is a share.
func memoryRole(ctx context.Context, w *p2p.World) error {
	if err := thousands(ctx, w, int(number(argVar))); err != nil {
		return err
	}
	if err := w.Comm().Barrier(ctx); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return err
	}
	pss := regexp.MustCompile(`\nPss: +(\d+) kB`).FindSubmatch(maps)
	if pss == nil {
		return fmt.Errorf("no Pss in %s", maps)
	}
	fmt.Printf("accounts for %s KiB\n", pss[1])
	return w.Comm().Barrier(ctx) // they are there until all have looked
}

// TestJobMemory: what a node needs for ranks that all talk to each other. Each pair of them has two
// rings.
func TestJobMemory(t *testing.T) {
	n, most := 16, 150                               // MiB
	ownMemory := testlevel.Race || invariant.Enabled // such builds need more
	if testlevel.CI() && !ownMemory {
		n, most = 64, 700
	}
	r := job{n: n, role: "memory", device: "shm", arg: 80}.run(t)
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	kib, told := 0, regexp.MustCompile(`accounts for (\d+) KiB`).FindAllStringSubmatch(r.out, -1)
	for _, m := range told {
		kib += atoi(t, m[1])
	}
	require.Len(t, told, n, r.out)
	t.Logf("%d ranks take %d MiB", n, kib>>10)
	require.True(t, ownMemory || kib>>10 < most, "%d ranks take %d MiB, at most %d", n, kib>>10, most)
}

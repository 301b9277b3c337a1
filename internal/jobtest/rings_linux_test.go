package jobtest

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["rings"] = ringsRole }

// ringsRole exchanges argVar blocks of 1,000 bytes with every rank, one after the other, and looks
// at the memory of its rings, of which it has two for each peer.
func ringsRole(ctx context.Context, w *p2p.World) error {
	n := w.Size()
	in, out := make([]byte, 1000*n), make([]byte, 1000*n)
	for round := range int(number(argVar)) {
		var reqs []p2p.Request
		for peer := range n {
			reqs = append(reqs, w.Comm().Irecv(peer, p2p.Tag(round), in[1000*peer:][:1000]),
				w.Comm().Isend(peer, p2p.Tag(round), out[1000*peer:][:1000]))
		}
		if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
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
	if want := 2 * (n - 1); rings != want {
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

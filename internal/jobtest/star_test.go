package jobtest

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"github.com/tagmatch/tagmatch/p2p"
)

const (
	starIn  = p2p.Tag(1)
	starOut = p2p.Tag(2)
)

// starRole has every rank send to rank 0 in each of argVar rounds; rank 0 answers each when it has
// received all. The ranks share the processors of coresVar, and know it.
func starRole(ctx context.Context, w *p2p.World) error {
	var dump strings.Builder
	if err := w.Dump(&dump); err != nil {
		return err
	}
	want := fmt.Sprintf("share its processors: %d on %d", w.Size(), min(int(number(coresVar)), runtime.NumCPU()))
	if !strings.Contains(dump.String(), want) {
		return fmt.Errorf("the dump does not say %q:\n%s", want, dump.String())
	}
	for round := range int(number(argVar)) {
		if err := starRound(ctx, w, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func starRound(ctx context.Context, w *p2p.World, round int) error {
	size := 64
	if round%100 == 99 {
		size = 100 << 10 // a rendezvous
	}
	buf := make([]byte, size)
	receive := func(tag p2p.Tag) (src int, err error) {
		st, err := w.Recv(ctx, tag, p2p.MaskExact, buf)
		if err != nil {
			return 0, err
		}
		src, seq, ok := parseMessage(buf, st)
		if !ok || seq != round || int(st.Len) != size {
			return 0, fmt.Errorf("message %d of %d bytes from rank %d is damaged, or of another round", seq, st.Len, st.Source)
		}
		return src, nil
	}
	if w.Rank() != 0 {
		if err := w.Send(ctx, 0, starIn, message(w.Rank(), round, size)); err != nil {
			return err
		}
		_, err := receive(starOut)
		return err
	}
	heard := make([]bool, w.Size())
	for range w.Size() - 1 {
		src, err := receive(starIn)
		if err != nil {
			return err
		}
		if heard[src] {
			return fmt.Errorf("rank %d was heard twice", src)
		}
		heard[src] = true
	}
	for peer := 1; peer < w.Size(); peer++ {
		if err := w.Send(ctx, peer, starOut, message(0, round, size)); err != nil {
			return err
		}
	}
	return nil
}

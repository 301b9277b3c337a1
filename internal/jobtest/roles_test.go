package jobtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/p2p"
)

// Environment of a rank: which role to play and its numbers.
const (
	roleVar = "JOBTEST_ROLE"
	seedVar = "JOBTEST_SEED"
	argVar  = "JOBTEST_ARG"

	coresVar   = "JOBTEST_CORES"    // number of processors, the first allowed ones, for all ranks
	noStoreVar = "JOBTEST_NO_STORE" // set: the launcher's store reports no losses
	oddVar     = "JOBTEST_ODD"      // VAR=VALUE that rank 1 alone sets
)

// roles are the programs of ranks, by name.
var roles = map[string]func(context.Context, *p2p.World) error{
	"schedule": scheduleRole,
	"stream":   streamRole,
	"alltoall": allToAllRole,
	"pingpong": pingPongRole,
	"star":     starRole,
	"killed":   killedRole,
	"orderly":  orderlyRole,
	"stranger": strangerRole,
	"stopped":  stoppedRole,
	"hasty":    hastyRole,
}

// programs are those roles that make their World themselves.
var programs = map[string]func(context.Context) error{}

// surviving are the roles whose ranks outlive another's death; the launcher then ends them all by
// SIGTERM.
var surviving = []string{"killed", "stranger", "hasty", "killedheld", "acked", "orphan", "duploop", "libraries", "orphandup", "storereset"}

// configure changes the Config of a rank; a role's init function may set it.
var configure = func(context.Context, *p2p.Config) error { return nil }

// playRole is the main function of a rank.
func playRole(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if run := programs[name]; run != nil {
		return run(ctx)
	}
	if slices.Contains(surviving, name) {
		signal.Ignore(syscall.SIGTERM) // at once: the other rank may die at any time
	}
	if err := prepare(); err != nil {
		return err
	}
	cfg, err := config(ctx)
	if err != nil {
		return err
	}
	if err := configure(ctx, &cfg); err != nil {
		return err
	}
	w, err := p2p.Init(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := roles[name](ctx, w); err != nil {
		// Before Close, which tells the others: the launcher may end this rank when the first of
		// them fails.
		fmt.Fprintf(os.Stderr, "%s: rank %d: %v\n", name, w.Rank(), err)
		return err
	}
	// A role may have closed its World itself.
	if err := shutdown(ctx, w); !errors.Is(err, p2p.ErrClosed) {
		return err
	}
	return nil
}

// shutdown is Shutdown, whose error must name each rank that this one has lost, in whatever way,
// and no other.
func shutdown(ctx context.Context, w *p2p.World) error {
	before := w.Failed()
	err := w.Shutdown(ctx)
	if len(before) == 0 || errors.Is(err, p2p.ErrClosed) {
		return err
	}
	lost, ok := errors.AsType[*p2p.PeerError](err)
	if !ok {
		return fmt.Errorf("shutdown after the loss of %v: %w", before, err)
	}
	after := w.Failed()
	for r := range w.Size() {
		named := slices.Contains(lost.Ranks, r)
		if !named && slices.Contains(before, r) || named && !slices.Contains(after, r) {
			return fmt.Errorf("failed before: %v, afterwards: %v, shutdown: %w", before, after, err)
		}
	}
	return nil
}

// config returns the Config of this rank.
func config(ctx context.Context) (p2p.Config, error) {
	if os.Getenv(noStoreVar) == "" {
		return p2p.Config{}, nil
	}
	b, err := bootstrap.Detect(ctx, bootstrap.Options{PeerTimeout: time.Hour})
	if err != nil {
		return p2p.Config{}, err
	}
	return p2p.Config{Bootstrap: silentStore{b}}, nil
}

// silentStore is a Bootstrap without reports of losses: a rank detects them by itself.
type silentStore struct {
	p2p.Bootstrap
}

func (silentStore) Losses() <-chan bootstrap.Loss {
	none := make(chan bootstrap.Loss)
	close(none)
	return none
}

func (silentStore) ReportGivenUp(int, string) error { return errors.ErrUnsupported }

// prepare prepares this process as its environment says.
func prepare() error {
	if key, value, ok := strings.Cut(os.Getenv(oddVar), "="); ok && os.Getenv("RANK") == "1" {
		if err := os.Setenv(key, value); err != nil {
			return err
		}
	}
	if os.Getenv(coresVar) != "" {
		return stayOn(int(number(coresVar)))
	}
	return nil
}

// number reads a numeric variable.
func number(name string) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s=%q: %v", name, os.Getenv(name), err))
	}
	return n
}

// scheduleRole plays rounds of random operations, alternately with raw calls and with the Comm.
func scheduleRole(ctx context.Context, w *p2p.World) error {
	rounds := max(1, int(number(argVar))/effort)
	for i, raw := range []bool{true, false, true, false} {
		s := &schedule{w: w, seed: number(seedVar) + uint64(i), useRaw: raw, big: i >= 2}
		if err := s.run(ctx, rounds); err != nil {
			return err
		}
		all := make([]uint64, w.Size())
		if _, err := exchange(ctx, w, 1<<60|barrierTag, all); err != nil {
			return err
		}
	}
	return nil
}

// streamSize is the size of message seq of a stream: mostly small, now and then up to 8 MiB.
func streamSize(rng *rand.Rand) int {
	switch p := rng.IntN(2000); {
	case p == 0:
		return 8<<20 - rng.IntN(2)
	case p < 10:
		return rng.IntN(1 << 20)
	case p < 200:
		return rng.IntN(48 << 10)
	case p < 1200:
		return rng.IntN(512)
	default:
		return rng.IntN(9)
	}
}

func streamRNG(src, dst int) *rand.Rand { return rand.New(rand.NewPCG(uint64(src), uint64(dst))) }

// streamRole sends argVar messages of mixed sizes to every other rank and receives as many from
// each, with and without wildcards; every message must be the next one of its source, byte by byte.
func streamRole(ctx context.Context, w *p2p.World) error {
	count := int(number(argVar))
	g, ctx := errgroup.WithContext(ctx)
	for dst := range w.Size() {
		if dst != w.Rank() {
			g.Go(func() error { return streamTo(ctx, w, dst, count) })
		}
	}
	g.Go(func() error { return streamFrom(ctx, w, count) })
	return g.Wait()
}

func streamTo(ctx context.Context, w *p2p.World, dst, count int) error {
	rng := streamRNG(w.Rank(), dst)
	buf := make([]byte, 8<<20)
	for seq := range count {
		b := buf[:streamSize(rng)]
		fill(b, uint64(w.Rank())<<32|uint64(seq))
		if err := w.Comm().Send(ctx, dst, p2p.Tag(seq%5), b); err != nil {
			return fmt.Errorf("message %d: %w", seq, err)
		}
	}
	return nil
}

// streamFrom receives everything with one receive at a time: any source and any tag, any source
// with a tag that only one source sends next, or one source with any tag.
func streamFrom(ctx context.Context, w *p2p.World, count int) error {
	next := make([]int, w.Size())
	sizes := make([]*rand.Rand, w.Size())
	for src := range sizes {
		sizes[src] = streamRNG(src, w.Rank())
	}
	buf, want := make([]byte, 8<<20), make([]byte, 8<<20)
	for i := range count * (w.Size() - 1) {
		src := p2p.AnySource
		if i%3 == 0 {
			if s := i / 3 % w.Size(); s != w.Rank() && next[s] < count {
				src = s
			}
		}
		tag := p2p.AnyTag
		if src != p2p.AnySource && i%2 == 0 {
			tag = p2p.Tag(next[src] % 5)
		}
		st, err := w.Comm().Recv(ctx, src, tag, buf)
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		seq := next[st.Source]
		next[st.Source]++
		b := want[:streamSize(sizes[st.Source])]
		fill(b, uint64(st.Source)<<32|uint64(seq))
		if st.Tag != p2p.Tag(seq%5) || st.Len != int64(len(b)) || string(buf[:st.Len]) != string(b) {
			return fmt.Errorf("receive %d: got tag %d, %d bytes from %d; message %d there has tag %d, %d bytes (or its bytes differ)",
				i, st.Tag, st.Len, st.Source, seq, seq%5, len(b))
		}
	}
	return nil
}

// allToAllRole exchanges one block with every rank, several times, all at once.
func allToAllRole(ctx context.Context, w *p2p.World) error {
	for round := range int(number(argVar)) {
		size := 1 + (round*7919)%(64<<10)
		var reqs []p2p.Request
		in := make([][]byte, w.Size())
		for peer := range w.Size() {
			in[peer] = make([]byte, size)
			reqs = append(reqs, w.Comm().Irecv(peer, p2p.Tag(round), in[peer]))
		}
		for peer := range w.Size() {
			out := make([]byte, size)
			fill(out, uint64(round)<<32|uint64(w.Rank())<<16|uint64(peer))
			reqs = append(reqs, w.Comm().Isend(peer, p2p.Tag(round), out))
		}
		if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		want := make([]byte, size)
		for peer := range w.Size() {
			fill(want, uint64(round)<<32|uint64(peer)<<16|uint64(w.Rank()))
			if string(in[peer]) != string(want) {
				return fmt.Errorf("round %d: block of rank %d differs", round, peer)
			}
		}
	}
	return nil
}

// pingPongRole bounces argVar messages between ranks 0 and 1.
func pingPongRole(ctx context.Context, w *p2p.World) error {
	buf := make([]byte, 8)
	for i := range int(number(argVar)) {
		if i%2 == w.Rank() {
			if err := w.Send(ctx, 1-w.Rank(), p2p.Tag(i), buf); err != nil {
				return err
			}
		} else if _, err := w.Recv(ctx, p2p.Tag(i), p2p.MaskExact, buf); err != nil {
			return err
		}
	}
	return nil
}

// killedRole kills rank 1 without warning. The others' operations with it must end with an error
// that names it, and the others must still be able to exchange messages.
func killedRole(ctx context.Context, w *p2p.World) error {
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	if w.Rank() == 1 { // the victim
		for range w.Size() - 1 {
			if _, err := w.Comm().Recv(ctx, p2p.AnySource, 4, nil); err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	big := make([]byte, 4<<20)
	recv := w.Comm().Irecv(1, 5, make([]byte, 8))
	send := w.Comm().Isend(1, 6, big)
	if err := w.Comm().Send(ctx, 1, 4, nil); err != nil { // the operations are in progress
		return err
	}
	for what, r := range map[string]p2p.Request{"receive": recv, "send": send} {
		if err := lostRank1(r.Wait(ctx)); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	// A receive from any source could match a message of the lost rank: it fails until the loss is
	// acknowledged.
	if err := lostRank1(w.Recv(ctx, 77, p2p.MaskExact, big)); err != nil {
		return fmt.Errorf("receive from any source: %w", err)
	}
	w.AckFailures(1)
	if err := survivorsTalk(ctx, w); err != nil {
		return err
	}
	fmt.Println("survived")
	return shutdown(ctx, w)
}

// strangerRole ends rank 1 before any connection to it, by SIGKILL or, with argVar, by Close.
func strangerRole(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 1 {
		if number(argVar) != 0 {
			return w.Close()
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := lostRank1(w.Comm().Recv(ctx, 1, 5, nil)); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if err := lostRank1(p2p.Status{}, w.Comm().Send(ctx, 1, 5, nil)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := survivorsTalk(ctx, w); err != nil {
		return err
	}
	fmt.Println("survived")
	return shutdown(ctx, w)
}

// hastyRole kills rank argVar as soon as it has joined. The others only have to join.
func hastyRole(_ context.Context, w *p2p.World) error {
	if w.Rank() == int(number(argVar)) {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Println("survived")
	return w.Close()
}

// lostRank1 checks the outcome of an operation with the killed rank.
func lostRank1(_ p2p.Status, err error) error {
	var peer *p2p.PeerError
	if !errors.Is(err, p2p.ErrPeerLost) || !errors.As(err, &peer) || len(peer.Ranks) != 1 || peer.Ranks[0] != 1 {
		return fmt.Errorf("want a PeerError of rank 1, got %w", err)
	}
	return nil
}

// survivorsTalk passes a token around the ranks other than 1.
func survivorsTalk(ctx context.Context, w *p2p.World) error {
	ring := []int{0}
	for r := 2; r < w.Size(); r++ {
		ring = append(ring, r)
	}
	at := max(0, w.Rank()-1)
	next, prev := ring[(at+1)%len(ring)], ring[(at+len(ring)-1)%len(ring)]
	buf := make([]byte, 8)
	for lap := range 100 {
		req := w.Comm().Irecv(prev, p2p.Tag(lap), buf)
		if err := w.Comm().Send(ctx, next, p2p.Tag(lap), buf); err != nil {
			return fmt.Errorf("lap %d: %w", lap, err)
		}
		if _, err := req.Wait(ctx); err != nil {
			return fmt.Errorf("lap %d: %w", lap, err)
		}
	}
	// A rank's last message must have been received before it leaves.
	_, err := exchangeAmong(ctx, w, ring)
	return err
}

// exchangeAmong is a barrier of some ranks.
func exchangeAmong(ctx context.Context, w *p2p.World, ranks []int) (int, error) {
	var reqs []p2p.Request
	for _, r := range ranks {
		reqs = append(reqs, w.Comm().Isend(r, 1000, nil), w.Comm().Irecv(r, 1000, nil))
	}
	return len(reqs), p2p.WaitAll(ctx, reqs, nil)
}

// orderlyRole sends a message and calls Shutdown, before the message is received.
func orderlyRole(ctx context.Context, w *p2p.World) error {
	if w.Rank() == 1 {
		return w.Send(ctx, 0, 3, make([]byte, 100))
	}
	if w.Rank() == 0 {
		for w.Metrics().UnexpectedNow == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_, err := w.Recv(ctx, 3, p2p.MaskExact, make([]byte, 100))
		return err
	}
	return nil
}

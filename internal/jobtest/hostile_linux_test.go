package jobtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

var (
	hostiles     = flag.Int("hostiles", 20, "play so many jobs with a hostile rank")
	firstHostile = flag.Uint64("hostile-first", 1, "the `seed` of the first of them")
)

const (
	hostileRanks = 4

	hostileLimit = 16 << 20 // of unexpected and of unsent messages, each, bytes

	// What a rank may grow by, whatever a hostile one sends: what it keeps when it is lost, and at
	// worst, where most is the buffers of these messages.
	hostileKept = 2 * hostileLimit
	hostilePeak = 128 << 20 * effort
)

// hostileEnv limits what messages take.
var hostileEnv = []string{fmt.Sprint("TAGMATCH_UNEXPECTED_LIMIT=", hostileLimit), fmt.Sprint("TAGMATCH_SEND_LIMIT=", hostileLimit)}

func init() {
	addHostile(lies, hostilePlan, func(h hostile) { beginHarm = softtest.Lie(h.seed, h.share) })
}

// addHostile adds a role with a hostile rank. In that one prepare, which runs before Init, sets
// beginHarm.
func addHostile(role string, plan func(seed uint64) hostile, prepare func(hostile)) {
	roles[role] = func(ctx context.Context, w *p2p.World) error { return plan(number(seedVar)).run(ctx, w) }
	surviving = append(surviving, role)
	if os.Getenv(roleVar) == role {
		configure = func(context.Context, *p2p.Config) error {
			if h := plan(number(seedVar)); os.Getenv("RANK") == strconv.Itoa(h.rank) {
				prepare(h)
			}
			return nil
		}
	}
}

// beginHarm has the hostile rank begin to do what the others must withstand.
var beginHarm func()

const lies = "hostile" // the role whose hostile rank sends lies

// hostile is how a job with a hostile rank is played, which its seed decides.
type hostile struct {
	role   string
	seed   uint64
	rank   int
	share  float64 // of its packets, which it changes
	device string
	env    []string
	talks  time.Duration // how long the others talk beside it
}

func hostilePlan(seed uint64) hostile {
	rng := rand.New(rand.NewPCG(seed, 0x405711e))
	h := hostile{role: lies, seed: seed, rank: rng.IntN(hostileRanks), talks: 2 * time.Second}
	h.share = []float64{0.3, 0.1, 0.03, 0.01, 0.002}[seed/4%5]
	h.device = []string{"shm", "tcp"}[seed%2]
	if seed/2%2 == 0 {
		h.env = tmsrqEnv
	}
	if rng.IntN(3) == 0 {
		h.env = append(slices.Clone(h.env), "TAGMATCH_ASYNC=on")
	}
	return h
}

// TestHostile: what one rank sends is changed, dropped, repeated. The others neither panic nor
// hang, and go on among each other. Operations with that rank end well, by their own context, or
// with an error that names it; so do all when its process has ended.
func TestHostile(t *testing.T) { testHostile(t, hostilePlan) }

func testHostile(t *testing.T, plan func(seed uint64) hostile) {
	t.Parallel()
	n := uint64(*hostiles)
	if !testlevel.CI() {
		n = (n + 3) / 4 // as few as mostly find a violation
	}
	var violations atomic.Int64
	for first := uint64(0); violations.Load() == 0 && first < uint64(*hostiles); first += n {
		t.Run("seed", func(t *testing.T) {
			for i := range n {
				seed := *firstHostile + first + i
				t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
					t.Parallel()
					violations.Add(plan(seed).play(t))
				})
			}
		})
	}
	require.NotZero(t, violations.Load(), "nobody found the protocol violated")
}

// play plays a job, and counts the ranks that found the protocol violated.
func (h hostile) play(t *testing.T) int64 {
	r := job{n: hostileRanks, role: h.role, device: h.device, seed: h.seed, keep: true,
		env: slices.Concat(h.env, hostileEnv, []string{dirVar + "=" + t.TempDir()})}.run(t)
	require.Equal(t, hostileRanks-1, strings.Count(r.out, "survived"), "-hostiles 1 -hostile-first %d: %+v\n%s%s", h.seed, h, r.out, r.err)
	t.Logf("%+v\n%s%s", h, r.out, r.err)
	return int64(strings.Count(r.out, "violation true"))
}

// run is any rank.
func (h hostile) run(ctx context.Context, w *p2p.World) error {
	color := 0
	if w.Rank() == h.rank {
		color = 1
	}
	c, err := w.Comm().Split(ctx, color, 0)
	if err != nil {
		return err
	}
	if color == 1 {
		return h.harm(ctx, w)
	}
	return h.withstand(ctx, w, c)
}

// harm is the hostile rank: it talks with all others until they have seen enough, and dies.
func (h hostile) harm(ctx context.Context, w *p2p.World) error {
	if _, err := exchange(ctx, w, 1<<60, make([]uint64, w.Size())); err != nil {
		return err
	}
	for range w.Size() - 1 { // nobody receives from any source
		if _, err := w.Comm().Recv(ctx, p2p.AnySource, neverTag, nil); err != nil {
			return err
		}
	}
	beginHarm()
	for peer := range w.Size() {
		if peer != h.rank {
			for i := range pesterers {
				p := newPesterer(w, peer, h.seed<<8|uint64(i))
				go func() {
					for ctx.Err() == nil && !errors.Is(p.step(ctx), p2p.ErrPeerLost) {
					}
				}()
			}
		}
	}
	for r := range w.Size() {
		for r != h.rank {
			if _, err := os.Stat(seenEnough(r)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

// seenEnough is the file by which a rank says that the hostile one may end.
func seenEnough(rank int) string {
	return filepath.Join(os.Getenv(dirVar), "done-"+strconv.Itoa(rank))
}

// withstand is one of the other ranks, whose Comm is c.
func (h hostile) withstand(ctx context.Context, w *p2p.World, c *p2p.Comm) error {
	end := func() error { return os.WriteFile(seenEnough(w.Rank()), nil, 0o600) }
	defer func() { _ = end() }() // also where this rank fails
	t := &talk{w: w, c: c, seed: h.seed}
	if _, err := t.round(ctx, false); err != nil {
		return err
	}
	if _, err := exchange(ctx, w, 1<<60, make([]uint64, w.Size())); err != nil {
		return err
	}
	if err := w.Comm().Send(ctx, h.rank, neverTag, nil); err != nil {
		return err
	}
	before := heapInUse()
	resident, err := memory("VmRSS")
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	ended := make(chan error, pesterers)
	for i := range pesterers {
		p := newPesterer(w, h.rank, h.seed<<8|uint64(0x80+i))
		go func() { ended <- p.run(ctx, stop) }()
	}
	if err := h.talkOn(ctx, t); err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := h.outlive(ctx, w, t); err != nil {
		return err
	}
	close(stop)
	for range pesterers {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			_ = w.Dump(os.Stderr)
			return errors.New("an operation with a rank that is lost did not end")
		}
	}
	if kept := heapInUse() - before; kept > hostileKept {
		return fmt.Errorf("a hostile rank has left %d bytes, of at most %d", kept, hostileKept)
	}
	if peak, err := memory("VmHWM"); err != nil || peak > resident+hostilePeak {
		return fmt.Errorf("%d bytes were resident, and then %d: %w", resident, peak, err)
	}
	if f := w.Failed(); !slices.Equal(f, []int{h.rank}) {
		return fmt.Errorf("failed: %v, rank %d is hostile", f, h.rank)
	}
	if err := t.barrier(ctx); err != nil { // nobody counts on this rank any more
		return err
	}
	fmt.Println("survived")
	return shutdown(ctx, w)
}

// talkOn has the others talk among each other for a while, and some more when the hostile rank is
// lost.
func (h hostile) talkOn(ctx context.Context, t *talk) error {
	end := time.Now().Add(h.talks)
	for more, last := 3, false; !last; {
		if len(t.w.Failed()) > 0 || time.Now().After(end) {
			more--
		}
		var err error
		if last, err = t.round(ctx, more <= 0); err != nil {
			return fmt.Errorf("among the others: %w", err)
		}
	}
	return nil
}

// outlive is what must hold when the hostile rank has ended.
func (h hostile) outlive(ctx context.Context, w *p2p.World, t *talk) error {
	_, err := w.Comm().Recv(ctx, h.rank, neverTag, nil)
	if err := lostTo(h.rank, err, ""); err != nil {
		return fmt.Errorf("receive from a rank that has died: %w", err)
	}
	violation := errors.Is(err, p2p.ErrProtocol)
	text, _, _ := strings.Cut(err.Error(), `: "`) // what follows are words of the other end
	if violation != strings.Contains(text, "protocol") {
		return fmt.Errorf("a violation (%v) and its text: %w", violation, err)
	}
	fmt.Printf("violation %v: %v\n", violation, err)
	_, err = w.Recv(ctx, neverTag, p2p.MaskExact, nil)
	if err := lostTo(h.rank, err, ""); err != nil {
		return fmt.Errorf("receive from any source: %w", err)
	}
	if _, err := w.Comm().Dup(ctx); !errors.Is(err, p2p.ErrPeerLost) {
		return fmt.Errorf("Dup with a rank that has died: %w", err)
	}
	w.AckFailures(h.rank)
	_, err = t.round(ctx, true)
	return err
}

// heapInUse is the bytes of the heap that something points to.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools had
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

package jobtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// cellVar names the cell of a trial, as cell.String does.
const cellVar = "JOBTEST_CELL"

func init() { programs["matrix"] = matrixRank }

// player is a rank in a trial.
type player struct {
	cell cell
	rank int
	seed uint64
	w    atomic.Pointer[p2p.World] // nil before Init returns
	c    *p2p.Comm
	pair *p2p.Comm // of the store and the partner, nil where ranks could not make it before the fault
	undo func()    // ends what was inflicted; the goroutine of the words sets it before it closes over

	closing atomic.Bool              // this rank closes its World, as its fault
	heard   map[string]chan struct{} // closed when the test has said the word
	watch   map[int]*watch           // by peer

	mu       sync.Mutex
	lost     []int    // that errors have named
	problems []string // what must not be
}

// watch is a receive that a peer's last message ends, or its loss.
type watch struct {
	req  p2p.Request
	buf  []byte
	done bool
	lost bool
}

// report is what a rank tells the test.
type report struct {
	Say      string
	At       int64 // nanoseconds of Unix time
	Lost     []int
	Problems []string
}

// say tells the test how far this rank is.
func (p *player) say(word string) {
	p.mu.Lock()
	r := report{Say: word, At: time.Now().UnixNano(), Lost: p.lost, Problems: p.problems}
	p.mu.Unlock()
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

func (p *player) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf("rank %d: ", p.rank)+fmt.Sprintf(format, args...))
}

// listen carries out the test's words, in a goroutine of its own.
func (p *player) listen() {
	p.heard = map[string]chan struct{}{}
	for _, word := range []string{"go", "over", "on", "leave"} {
		p.heard[word] = make(chan struct{})
	}
	words := testWords()
	go func() {
		for word := range words {
			if word != "fault" {
				close(p.heard[word])
				continue
			}
			if err := p.cell.fault.inflict(p); err != nil {
				p.problem("inflicting the fault: %v", err)
			}
			p.say("inflicted")
		}
	}()
}

// matrixRank is the program of a rank.
func matrixRank(ctx context.Context) error {
	p := &player{cell: cellNamed(os.Getenv(cellVar)), rank: int(number("RANK")), seed: number(seedVar)}
	p.listen()
	if r, w, err := os.Pipe(); err != nil || errors.Join(r.Close(), w.Close()) != nil {
		return fmt.Errorf("a pipe: %w", err) // by which package runtime opens its poller
	}
	before, err := holds()
	if err != nil {
		return err
	}
	if p.cell.phase == joining {
		p.say("there")
	}
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		if p.cell.phase != joining || !p.cell.namesVictim(err) {
			p.problem("init: %v", err)
		}
		if strings.Contains(err.Error(), fmt.Sprint("rank ", victim)) {
			p.named([]int{victim})
		}
		p.say("ended")
		p.say("done")
		<-p.heard["leave"]
	} else {
		p.w.Store(w)
		p.c = w.Comm()
		p.play(ctx)
		<-p.heard["leave"]
		p.check(-1, p.leave(ctx))
	}
	if p.undo != nil {
		p.undo()
	}
	if left := before.left(); left != "" {
		p.problem("left behind: %s", left)
	}
	p.say("left")
	return nil
}

// namesVictim reports whether an error of Init says whose fault it is. A process says no rank of
// itself.
func (c cell) namesVictim(err error) bool {
	return strings.Contains(err.Error(), fmt.Sprint("rank ", victim)) || c.fault.shortage || c.outcome() == apart
}

// play is the trial from Init to the end of the messages.
func (p *player) play(ctx context.Context) {
	if p.cell.phase != leaving {
		p.watchOthers()
	}
	if p.cell.phase != joining {
		p.prepare(ctx)
	}
	phasePlays[p.cell.phase](p, ctx)
	if p.cell.phase == leaving {
		p.say("ended")
		p.say("done")
		return
	}
	// Whoever loses nobody goes on when the test says so.
	if loses := p.cell.loses(p.rank); len(loses) == 0 {
		<-p.heard["over"]
	} else {
		for _, peer := range loses {
			p.endWatch(ctx, peer)
		}
	}
	p.say("ended")
	<-p.heard["on"]
	p.goOn(ctx)
	p.say("done")
}

// prepare connects the ranks, and makes a Comm of those that the fault does not concern.
func (p *player) prepare(ctx context.Context) {
	ranks := [][]int{{server, victim}, {server, partner}, {victim, partner}}
	if p.cell.phase == connecting {
		ranks = ranks[:2]
	}
	for _, two := range ranks {
		if slices.Contains(two, p.rank) {
			if _, err := exchangeAmong(ctx, p.w.Load(), two); err != nil {
				p.problem("prepare: %v", err)
			}
		}
	}
	if p.cell.phase == connecting {
		return
	}
	color := 0
	if p.rank == victim {
		color = -1
	}
	var err error
	if p.pair, err = p.c.Split(ctx, color, 0); err != nil {
		p.problem("prepare: %v", err)
	}
}

func (p *player) watchOthers() {
	p.watch = map[int]*watch{}
	for peer := range matrixRanks {
		if peer != p.rank {
			buf := make([]byte, 64)
			p.watch[peer] = &watch{req: p.c.Irecv(peer, tagWatch, buf), buf: buf}
		}
	}
}

// endWatch waits until a watch has ended.
func (p *player) endWatch(ctx context.Context, peer int) {
	w := p.watch[peer]
	if w.done {
		return
	}
	w.done = true
	st, err := w.req.Wait(ctx)
	w.lost = err != nil
	if p.check(peer, err) && err == nil {
		p.checkData("watch", peer, 0, st, w.buf)
	}
	p.onlyOnce(w.req)
}

// onlyOnce checks that a request does not end a second time.
func (p *player) onlyOnce(r p2p.Request) {
	if _, err := r.Wait(context.Background()); !errors.Is(err, p2p.ErrInactive) {
		p.problem("a request has ended twice, at last with: %v", err)
	}
}

// check checks how an operation with a peer has ended, -1: with all; it says whether that is right.
func (p *player) check(peer int, err error) bool {
	lost, isLoss := errors.AsType[*p2p.PeerError](err)
	if isLoss {
		p.named(lost.Ranks)
	}
	may := p.cell.mayLose(p.rank)
	switch {
	case err == nil:
		return true
	case p.closing.Load() && errors.Is(err, p2p.ErrClosed):
		return true
	case isLoss && len(lost.Ranks) != 0:
		right := !slices.ContainsFunc(lost.Ranks, func(r int) bool { return !slices.Contains(may, r) })
		if right && (peer < 0 || slices.Equal(lost.Ranks, []int{peer})) {
			return true
		}
	}
	if isLoss && p.cell.phase == leaving && len(may) != 0 {
		return true // another survivor has lost the victim too, and left at once
	}
	p.problem("an operation with %d ends with: %v", peer, err)
	return false
}

// named remembers which ranks an error has named.
func (p *player) named(ranks []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range ranks {
		if !slices.Contains(p.lost, r) {
			p.lost = append(p.lost, r)
		}
	}
	slices.Sort(p.lost)
}

// checkData checks the bytes of a message.
func (p *player) checkData(what string, peer, seq int, st p2p.Status, got []byte) {
	want := make([]byte, st.Len)
	fill(want, messageSeed(peer, seq))
	if st.Source != peer || string(got[:st.Len]) != string(want) {
		p.problem("%s: message %d of %d has other bytes", what, seq, peer)
	}
}

// messageSeed is the seed of the bytes of a message.
func messageSeed(from, seq int) uint64 { return uint64(from)<<32 | uint64(seq) }

// goOn has this rank talk with all that it has not lost.
func (p *player) goOn(ctx context.Context) {
	if p.closing.Load() {
		for peer := range p.watch {
			p.endWatch(ctx, peer)
		}
		return
	}
	buf := make([]byte, 64)
	fill(buf, messageSeed(p.rank, 0))
	for peer := range p.watch {
		p.check(peer, p.c.Send(ctx, peer, tagWatch, buf))
	}
	var left []int
	for peer, w := range p.watch {
		if p.endWatch(ctx, peer); !w.lost {
			left = append(left, peer)
		}
	}
	w := p.w.Load()
	failed := w.Failed()
	for peer, w := range p.watch {
		if w.lost != slices.Contains(failed, peer) {
			p.problem("the watch of %d was lost: %v, failed are %v", peer, w.lost, failed)
		}
	}
	w.AckFailures(failed...)
	slices.Sort(left)
	for _, peer := range left {
		p.exchangeAll(ctx, peer)
	}
	p.fromAny(ctx, left)
	if p.pair != nil && p.rank != victim {
		p.useComm(ctx)
	}
	// Who leaves first is lost to those that still need it.
	for _, peer := range left {
		_, err := p.c.Sendrecv(ctx, peer, tagEnd, nil, peer, tagEnd, nil)
		p.check(peer, err)
	}
}

// exchangeAll exchanges messages of all kinds with a peer.
func (p *player) exchangeAll(ctx context.Context, peer int) {
	for seq, size := range []int{8, 0, 3000, 30_000, 100_000, 3 << 20} {
		out, in := make([]byte, size), make([]byte, size)
		fill(out, messageSeed(p.rank, seq))
		st, err := p.c.Sendrecv(ctx, peer, tagGoOn, out, peer, tagGoOn, in)
		if err != nil {
			p.problem("it does not go on with %d: %v", peer, err)
			return
		}
		p.checkData("afterwards", peer, seq, st, in)
	}
}

// fromAny receives from any source once what each peer sends.
func (p *player) fromAny(ctx context.Context, left []int) {
	for _, peer := range left {
		if err := p.c.Send(ctx, peer, tagAny, nil); err != nil {
			p.problem("send to %d: %v", peer, err)
		}
	}
	for range left {
		if _, err := p.c.Recv(ctx, p2p.AnySource, tagAny, nil); err != nil {
			p.problem("receive from any source: %v", err)
		}
	}
}

// useComm makes a Comm among the ranks that the fault does not concern.
func (p *player) useComm(ctx context.Context) {
	if err := makesAComm(ctx, p.pair); err != nil {
		p.problem("a Comm of those that are left: %v", err)
	}
}

// leave ends the World, if it has not ended.
func (p *player) leave(ctx context.Context) error {
	if err := shutdown(ctx, p.w.Load()); !errors.Is(err, p2p.ErrClosed) {
		return err
	}
	return nil
}

// holdings is what a process holds.
type holdings struct {
	files      map[string]int
	goroutines int
	mappings   int // of shared memory
}

// holds lists what this process holds.
func holds() (h holdings, err error) {
	h = holdings{files: map[string]int{}, goroutines: runtime.NumGoroutine()}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return h, err
	}
	for _, f := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && !strings.HasPrefix(to, "/proc/") {
			h.files[to]++
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	h.mappings = strings.Count(string(maps), "memfd:") + strings.Count(string(maps), "/dev/shm")
	return h, err
}

// left says what this process holds beyond h, once that does not become less.
func (h holdings) left() (more string) {
	for end := time.Now().Add(testlevel.Patience(10 * time.Second)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		now, err := holds()
		if err != nil {
			return err.Error()
		}
		more = ""
		for to, n := range now.files {
			if n > h.files[to] {
				more += " " + to
			}
		}
		if now.goroutines > h.goroutines {
			more += fmt.Sprintf(" %d goroutines", now.goroutines-h.goroutines)
		}
		if now.mappings > h.mappings {
			more += fmt.Sprintf(" %d mappings", now.mappings-h.mappings)
		}
		if more == "" {
			return ""
		}
	}
	return more
}

package rendezvous

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// giveUpWait is how long a Fence whose context has ended waits for the names of the missing ranks.
const giveUpWait = 250 * time.Millisecond

// uplink carries messages from a rank to the hub.
type uplink interface {
	send(m message) error
	// fenced waits, after a fence, until those have its answer that get it from this rank.
	fenced()
	// close sends BYE and frees the rank's resources.
	close(finished bool) error
}

// Endpoint is the Bootstrap of one rank, see there, whether the hub is in its process or across a
// connection.
type Endpoint struct {
	rank, size int
	info       Info // constant once the job is joined

	up       uplink
	launched *link.Link    // told of an Abort; may be nil
	space    space.Space   // of the launcher, likewise
	children *relay        // ranks that get RELEASE from this one; may be nil
	parent   *child        // from which this one gets it; may be nil
	fencing  chan struct{} // holds a token during a Fence
	broken   chan struct{} // closed when err is set
	aborted  chan AbortInfo
	losses   chan Loss            // has room for two reports on every rank
	patience time.Duration        // giveUpWait; shorter in tests
	vigil    func() (stop func()) // of rank 0, for the first fence; else nil
	asking   asking

	mu       sync.Mutex // guards the fields below
	pending  []entry
	size8    int                 // bytes of pending in a FENCE message
	table    map[string][][]byte // by key and rank; nil: never put
	fences   uint32              // completed fences
	waiting  chan struct{}
	err      error   // the first failure, returned by Fence and Abort
	finished bool    // aborted is closed
	told     []uint8 // by rank: the reports sent to losses
	deaf     bool    // losses is closed
	closed   bool
	leaving  bool // Leave was called
	ended    bool // likewise, since all ranks have reached the end of the job
}

func newEndpoint(rank, size int, info Info) *Endpoint {
	return &Endpoint{rank: rank, size: size, info: info, table: map[string][][]byte{}, fencing: make(chan struct{}, 1),
		broken: make(chan struct{}), aborted: make(chan AbortInfo, 1),
		losses: make(chan Loss, 2*size), patience: giveUpWait, told: make([]uint8, size),
		asking: asking{making: make(chan struct{}, 1), over: make(chan struct{})}}
}

func (e *Endpoint) Rank() int                 { return e.rank }
func (e *Endpoint) Size() int                 { return e.size }
func (e *Endpoint) Info() Info                { return e.info }
func (e *Endpoint) Aborted() <-chan AbortInfo { return e.aborted }
func (e *Endpoint) Losses() <-chan Loss       { return e.losses }

// Put implements Bootstrap. It is local.
func (e *Endpoint) Put(ctx context.Context, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key == "" || len(key) > MaxKey {
		return Errorf(ErrConfig, "put: a key has 1 to %d bytes, this one has %d", MaxKey, len(key))
	}
	if len(value) > MaxValue {
		return Errorf(ErrConfig, "put of %q: a value has at most %d bytes, this one has %d: split it over several keys", cut(key, 64), MaxValue, len(value))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stateLocked(); err != nil {
		return err
	}
	n := entrySize + len(key) + len(value)
	if e.size8+n > MaxFence {
		return Errorf(ErrConfig, "put of %q: at most %d bytes between two fences, keys included: call Fence in between", cut(key, 64), MaxFence)
	}
	e.size8 += n
	e.pending = append(e.pending, entry{uint32(e.rank), key, append([]byte{}, value...)}) // never nil
	return nil
}

// Get implements Bootstrap. It is local.
func (e *Endpoint) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if rank < 0 || rank >= e.size {
		return nil, Errorf(ErrConfig, "get of %q from rank %d: ranks go from 0 to %d", cut(key, 64), rank, e.size-1)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if _, ok := e.err.(*AbortError); ok {
		return nil, e.err
	}
	var v []byte
	if of := e.table[key]; of != nil {
		v = of[rank]
	}
	if v == nil {
		return nil, Errorf(ErrNotFound, "rank %d had put nothing under %q at the last fence (%d fences have ended)", rank, cut(key, 64), e.fences)
	}
	return v, nil
}

// Fence implements Bootstrap.
func (e *Endpoint) Fence(ctx context.Context) error {
	select {
	case e.fencing <- struct{}{}:
		defer func() { <-e.fencing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m, done, err := e.arrive()
	if err != nil {
		return err
	}
	if m.seq == 1 && e.vigil != nil { // it ends the join; later ones may well take long
		defer e.vigil()()
	}
	if err := e.up.send(m); err != nil {
		e.fail(&RankError{0, "cannot be reached: " + bare(err)})
	}
	select {
	case <-done:
		e.up.fenced()
		return nil
	case <-e.broken:
		return e.outcome(done)
	case <-ctx.Done():
		return e.giveUp(ctx, m.seq, done)
	}
}

// arrive takes the pending values and prepares for the answer.
func (e *Endpoint) arrive() (*fenceMsg, chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.stateLocked(); err != nil {
		return nil, nil, err
	}
	m := &fenceMsg{seq: e.fences + 1, entries: e.pending}
	e.pending, e.size8 = nil, 0
	e.waiting = make(chan struct{})
	return m, e.waiting, nil
}

// outcome returns the result of a fence after the job failed: the fence may have completed just
// before.
func (e *Endpoint) outcome(done chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// giveUp leaves a fence whose context has ended. As no rank can be half in a fence, the job fails
// for all; the hub's answer names the missing ranks.
func (e *Endpoint) giveUp(ctx context.Context, seq uint32, done chan struct{}) error {
	reason := cut(context.Cause(ctx).Error(), maxReason)
	sent := e.up.send(&giveUpMsg{seq, reason})
	t := time.NewTimer(e.patience)
	defer t.Stop()
	if sent == nil {
		select {
		case <-done:
			return nil // completed just now
		case <-e.broken:
		case <-t.C:
		}
	}
	text := "rank 0 did not say which ranks are missing"
	e.mu.Lock()
	if e.err != nil {
		text = bare(e.err)
	}
	e.mu.Unlock()
	err := Errorf(ctx.Err(), "%v: %s", ctx.Err(), text)
	e.fail(err)
	return err
}

// Abort implements Bootstrap. The launcher comes first: a rank that hears of it earlier and ends
// with a code of its own would decide that of the job.
func (e *Endpoint) Abort(code int, reason string) {
	if e.launched != nil {
		e.launched.Abort(code, reason)
	}
	if e.space != nil {
		e.space.Abort(code, reason)
	}
	e.mu.Lock()
	over := e.stateLocked() != nil
	e.mu.Unlock()
	if !over {
		e.abort(&abortMsg{int32(e.rank), int32(code), cut(reason, maxReason)})
	}
}

// abort first fails this rank's calls, so that these end whatever becomes of the others.
func (e *Endpoint) abort(m *abortMsg) {
	e.deliver(m)
	_ = e.up.send(m) // rank 0 may be gone
}

// Leave implements Bootstrap.
func (e *Endpoint) Leave(finished bool) {
	e.mu.Lock()
	again := e.leaving || e.closed
	e.leaving, e.ended = true, e.ended || finished && !again
	e.mu.Unlock()
	switch {
	case again || e.launched == nil:
	case finished:
		e.launched.Say(link.Finished)
	default:
		e.launched.Say(link.Closed)
	}
}

// Lost implements Bootstrap.
func (e *Endpoint) Lost(rank int) {
	if e.launched != nil {
		e.launched.Lost(rank)
	}
}

// Close implements Bootstrap.
func (e *Endpoint) Close() error {
	e.Leave(false)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	if e.err == nil {
		e.breakLocked(ErrClosed)
	}
	if !e.finished {
		e.finished = true
		close(e.aborted)
	}
	e.deafenLocked()
	ended := e.ended
	e.mu.Unlock()
	e.asking.close()
	if e.parent != nil {
		e.parent.close()
	}
	if e.children != nil {
		e.children.close()
	}
	err := e.up.close(ended)
	e.asking.replying.Wait()
	if e.launched != nil {
		err = errors.Join(err, e.launched.Close())
	}
	if e.space != nil {
		err = errors.Join(err, e.space.Close())
	}
	return err
}

// ErrLauncherGone is why the ranks of a launcher end that is gone.
var ErrLauncherGone = errors.New("the launcher is gone")

// Launched has the launcher behind l hear of the rank's end, and the rank end when gone ends. It is
// called before the Endpoint is used.
func (e *Endpoint) Launched(l *link.Link, gone context.Context) {
	e.launched = l
	context.AfterFunc(gone, e.orphaned)
}

// Within has the launcher of s hear of an Abort and of Close, which closes s. It is called before
// the Endpoint is used.
func (e *Endpoint) Within(s space.Space) { e.space = s }

// orphaned ends the job when its launcher is gone, which could not end this process any more.
func (e *Endpoint) orphaned() {
	e.mu.Lock()
	over := e.stateLocked() != nil
	e.mu.Unlock()
	if !over {
		e.abort(&abortMsg{rank: -1, code: 1, reason: ErrLauncherGone.Error()})
	}
}

// stateLocked is the error of calls that need other ranks, nil while the job is intact.
func (e *Endpoint) stateLocked() error {
	if e.closed {
		return ErrClosed
	}
	return e.err
}

// deliver handles a message from the hub. It does not block.
func (e *Endpoint) deliver(m message) {
	switch m := m.(type) { // they need nothing of what else there is
	case *askMsg:
		e.asked(m)
		return
	case *replyMsg:
		e.asking.replied(m)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch m := m.(type) {
	case *releaseMsg:
		e.releaseLocked(m)
		if e.children != nil {
			e.children.pass(m)
		}
	case *failMsg:
		e.breakLocked(endError(m))
	case *abortMsg:
		e.breakLocked(endError(m))
		if !e.finished {
			e.finished = true
			e.aborted <- m.err().(*AbortError).AbortInfo
			close(e.aborted)
		}
	case *goneMsg:
		e.lostLocked(Loss{Rank: int(m.rank), Reason: m.reason})
	case *peerGivenUpMsg:
		e.lostLocked(Loss{Rank: int(m.rank), Reason: m.reason, GivenUp: true})
	case *welcomeMsg:
		e.info.JobID = hex.EncodeToString(m.jobID[:])
	default:
		e.breakLocked(Errorf(ErrProtocol, "%v frame from rank 0", m.kind()))
	}
}

// lostLocked reports a loss. A rank that gave up this one and then leaves the job is reported
// twice.
func (e *Endpoint) lostLocked(l Loss) {
	var bit uint8 = 1
	if l.GivenUp {
		bit = 2
	}
	if uint(l.Rank) < uint(e.size) && e.told[l.Rank]&bit == 0 && !e.deaf {
		e.told[l.Rank] |= bit
		e.losses <- l
	}
}

// deafen closes Losses, as no more losses can be heard of.
func (e *Endpoint) deafen() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deafenLocked()
}

func (e *Endpoint) deafenLocked() {
	if !e.deaf {
		e.deaf = true
		close(e.losses)
	}
}

// ReportGivenUp implements Bootstrap.
func (e *Endpoint) ReportGivenUp(rank int, reason string) error {
	if rank < 0 || rank >= e.size {
		return Errorf(ErrConfig, "given up rank %d: ranks go from 0 to %d", rank, e.size-1)
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return e.up.send(&peerGivenUpMsg{uint32(rank), cut(reason, maxReason)})
}

func (e *Endpoint) releaseLocked(m *releaseMsg) {
	if m.seq <= e.fences && e.parent != nil {
		return // of the parent and of rank 0, which was asked for it
	}
	if e.waiting == nil || m.seq != e.fences+1 {
		e.breakLocked(Errorf(ErrProtocol, "rank 0 ended fence %d, this rank is in %d", m.seq, e.fences+1))
		return
	}
	for _, v := range m.entries {
		if int(v.rank) >= e.size {
			e.breakLocked(Errorf(ErrProtocol, "rank 0 sent a value of rank %d in a job of %d", v.rank, e.size))
			return
		}
	}
	for _, v := range m.entries {
		of := e.table[v.key]
		if of == nil {
			of = make([][]byte, e.size)
			e.table[v.key] = of
		}
		of[v.rank] = v.value
	}
	e.fences++
	close(e.waiting)
	e.waiting = nil
}

// awaitRelease waits for the answer to a fence that rank 0 has left, and then ended, to come down
// the tree, or for the parent to say that none will come: see relay.end.
func (e *Endpoint) awaitRelease() {
	e.mu.Lock()
	waiting := e.waiting
	e.mu.Unlock()
	if e.parent == nil || waiting == nil {
		return
	}
	select {
	case <-waiting:
	case <-e.broken:
	case <-e.parent.ended:
	}
}

// fail makes this rank's calls fail with err, unless they fail already.
func (e *Endpoint) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breakLocked(err)
}

func (e *Endpoint) breakLocked(err error) {
	if e.err != nil {
		return
	}
	e.err = err
	close(e.broken)
	if e.children != nil {
		e.children.end()
	}
}

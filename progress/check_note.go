//go:build invariants

package progress

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// noteKind is a kind of operation.
type noteKind uint8

const (
	noteSend      noteKind = iota // Isend, Issend
	noteRecv                      // Irecv
	noteNull                      // see Engine.Null
	noteSendCall                  // Send, Ssend
	noteRecvCall                  // Recv
	noteProbeCall                 // Probe, Mprobe
	noteAllocCall                 // RecvAlloc
	noteFlush
	noteAbandoned // see opAbandoned
)

func (k noteKind) sends() bool { return k == noteSend || k == noteSendCall }
func (k noteKind) receives() bool {
	return k == noteRecv || k >= noteRecvCall && k <= noteAllocCall
}

// record is what is known of one operation, from its post until its outcome is taken; requests
// refer to it for longer. Fields without a word are guarded by Engine.mu until the operation has
// ended, and its consumer's afterwards.
type record struct {
	op        *Op    // constant, as all up to posted; an operation of somebody else once this one is consumed
	gen       uint64 // of op
	kind      noteKind
	peer      int
	tag, mask uint64
	length    int
	seq       uint64          // in the order of all posts
	posted    invariant.Stack // by whom

	order   uint64   // in the posted-receive queue
	bufs    [][]byte // that the program must leave alone; nil once the outcome is reported, or dropped
	sum     uint64   // of bufs: of a send as it was posted, of a receive as it ended, then they are the message
	changed bool     // a send's buffer has, when it ended

	dropped  bool         // nobody will be told the outcome; guarded by Engine.mu, as the next
	q        *Queue       // that reports the outcome
	waits    atomic.Int32 // goroutines in Wait
	consumed atomic.Pointer[invariant.Stack]
}

// note is where an operation, or a Request, has its record; nil for a Request that was born failed.
type note = *record

func (r *record) String() string {
	switch r.kind {
	case noteFlush:
		return "flush"
	case noteNull:
		return "call without a peer"
	}
	mask := r.mask
	if !r.kind.receives() {
		mask = ^uint64(0)
	}
	peer, tag := rankName(r.peer), r.op.e.cfg.tagText(r.tag, mask)
	switch {
	case r.kind == noteAbandoned:
		return fmt.Sprintf("reads under way of a receive that has ended, from %s, %s", peer, tag)
	case r.kind.sends():
		return fmt.Sprintf("send of %d bytes to %s, %s", r.length, peer, tag)
	case r.kind == noteProbeCall:
		return fmt.Sprintf("probe from %s, %s", peer, tag)
	case r.kind == noteAllocCall:
		return fmt.Sprintf("RecvAlloc from %s, %s", peer, tag)
	}
	return fmt.Sprintf("receive of up to %d bytes from %s, %s", r.length, peer, tag)
}

func (r *record) underWay() bool { return r.op.UnderWay(r.gen) }

// where is a record with the place of its post. It is text only once somebody reads it.
type where struct{ r *record }

func (r *record) where() where { return where{r} }

func (w where) String() string {
	if w.r == nil {
		return "an operation that is in the pool"
	}
	return fmt.Sprintf("%v, posted at\n%v", w.r, w.r.posted)
}

// takeNote begins the record of an operation that is about to be posted.
func (op *Op) takeNote(kind noteKind) {
	c := &op.e.inv
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posts++
	r := &record{op: op, gen: op.Gen(), kind: kind, peer: op.peer, tag: op.tag, mask: op.mask, length: len(op.buf), seq: c.posts, posted: invariant.Here()}
	if r.kind.sends() || r.kind == noteRecv {
		r.bufs = [][]byte{op.buf}
		r.sum = sumOf(r.bufs)
	}
	if c.live == nil {
		c.live = map[*record]struct{}{}
	}
	c.live[r] = struct{}{}
	op.note = r
}

// born is all of the life of an operation that has ended in its own post.
func (op *Op) born(kind noteKind, peer int, tag uint64, buf []byte) {
	op.move(opNew)
	op.peer, op.tag, op.buf = peer, tag, buf
	op.takeNote(kind)
	op.note.ended(Status{})
	op.buf = nil
	op.move(opEnded)
}

// vector says that the operation has several buffers.
func (r *record) vector(parts [][]byte) {
	r.length = sizeOf(parts)
	r.bufs = slices.Clone(parts)
	r.sum = sumOf(r.bufs)
}

// sumOf is a checksum of the bytes of all buffers.
func sumOf(bufs [][]byte) uint64 {
	d := xxhash.New()
	for _, b := range bufs {
		_, _ = d.Write(b)
	}
	return d.Sum64()
}

// first are the first n bytes of buffers.
func first(bufs [][]byte, n int64) (head [][]byte) {
	for _, b := range bufs {
		k := min(n, int64(len(b)))
		head = append(head, b[:k])
		n -= k
	}
	return head
}

// awaited counts the goroutines that wait for a request.
func (r *record) awaited(n int32) {
	if r != nil {
		r.waits.Add(n)
	}
}

// given says who is told the outcome of a request that was given away: q, or nobody.
func (r *record) given(q *Queue) {
	if r.q, r.dropped = q, q == nil; r.dropped {
		r.bufs = nil
	}
}

// ended looks at the buffer of an operation that ends. Of a receive's only the message counts: what
// is behind it in the buffer the library has never touched, and programs may.
func (r *record) ended(st Status) {
	switch {
	case r.kind.sends():
		r.changed = sumOf(r.bufs) != r.sum
	case r.kind == noteRecv:
		r.bufs = first(r.bufs, st.Len)
		r.sum = sumOf(r.bufs)
	}
}

// outcome is called by whoever has taken the outcome of an operation, without the lock. Package p2p
// promises its buffers to the library until then, not only until the operation ends.
func (r *record) outcome(err error) {
	if r == nil || r.bufs == nil {
		return
	}
	defer func() { r.bufs = nil }()
	switch {
	case r.kind.receives():
		invariant.Check(r.intact(), "buffer", "the buffer of a receive changed after the message was in it and before its request was reported complete: %s", r.where())
	case err != nil:
	case r.changed:
		invariant.Broken("buffer", "the buffer of a send changed while it was under way: %s", r.where())
	default:
		invariant.Check(r.intact(), "buffer", "the buffer of a send changed before its request was reported complete: %s", r.where())
	}
}

// intact reports whether the buffer is as it was. That of a Region which was closed too early may
// be unmapped by now.
func (r *record) intact() bool {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			invariant.Broken("buffer", "memory was unmapped, by Region.Close or otherwise, before the request that uses it was reported complete (%v): %s",
				fault, r.where())
		}
	}()
	return sumOf(r.bufs) == r.sum
}

// inactive is the error of a Request that was consumed before.
func (r *record) inactive() error {
	if r == nil {
		return ErrInactive
	}
	return &inactiveError{r}
}

type inactiveError struct{ r *record }

func (e *inactiveError) Error() string {
	s := ErrInactive.Error() + ": " + e.r.where().String()
	if c := e.r.consumed.Load(); c != nil {
		s += fmt.Sprintf("its outcome was taken at\n%v", *c)
	}
	return strings.TrimRight(s, "\n")
}

func (e *inactiveError) Unwrap() error { return ErrInactive }

// requests lists the operations of the program whose outcome nobody has taken, in the order of
// their posts.
func (c *engineCheck) requests(which func(*record) bool) []*record {
	c.mu.Lock()
	defer c.mu.Unlock()
	rs := slices.SortedFunc(maps.Keys(c.live), func(a, b *record) int { return int(a.seq) - int(b.seq) })
	return slices.DeleteFunc(rs, func(r *record) bool { return r.kind == noteAbandoned || !which(r) })
}

// state says how far an operation of the list of requests is.
func (r *record) state() string {
	switch {
	case !r.underWay() && r.q != nil:
		return "ended, not reported by its Queue yet"
	case !r.underWay():
		return "ended, not completed by Wait or Test"
	case r.dropped:
		return "under way, given up by Free"
	case r.q != nil:
		return "under way, given to a Queue"
	case r.waits.Load() != 0 || !r.kind.named():
		return "under way, waited for"
	}
	return "under way"
}

func (c *engineCheck) dump(b io.Writer) {
	rs := c.requests(func(*record) bool { return true })
	fmt.Fprintf(b, "operations: %d\n", len(rs))
	for i, r := range rs {
		if i == dumpMost {
			fmt.Fprintf(b, "  ...\n")
			break
		}
		fmt.Fprintf(b, "  %s: %s", r.state(), indent(r.where().String(), "    "))
	}
}

// indent puts an indent before each line but the first.
func indent(s, by string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n"+by) + "\n"
}

// dropBuffers gives up the buffers of operations whose outcome nobody has taken, once the engine is
// closed. Who takes it from then on has deleted the record from live before.
func (c *engineCheck) dropBuffers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.live {
		r.bufs = nil
	}
}

// forgotten reports whether the program has a request that it does not wait for.
func (r *record) forgotten() bool {
	return r.kind.named() && r.waits.Load() == 0 && !r.dropped && (r.q == nil || r.q.calls.head == nil)
}

// warnOpen tells of requests and messages that the program has left when the engine ends.
func (c *engineCheck) warnOpen(e *Engine) {
	rs := c.requests((*record).forgotten)
	places, first := map[string]int{}, map[string]*record{}
	for _, r := range rs {
		at := r.posted.Caller()
		if places[at]++; places[at] == 1 {
			first[at] = r
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(places), func(a, b string) int { return int(first[a].seq) - int(first[b].seq) }) {
		r := first[at]
		e.log.Warn("requests that were posted here were never completed", "rank", e.cfg.Rank, "posted", at, "requests", places[at],
			"first", r.String(), "state", r.state())
	}
	if n := e.unexp.Len(); n != 0 {
		var b bytes.Buffer
		(&dumper{e, &b}).unexpected()
		e.log.Warn("messages were never received", "rank", e.cfg.Rank, "messages", b.String())
	}
}

package progress

// Unfinished describes operations of this rank that have not ended, or messages that no receive has
// matched: those alike in all that is known of them.
type Unfinished struct {
	Kind      UnfinishedKind
	Peer      int    // in the World; AnySource: any
	Tag, Mask uint64 // the mask is that of a receive that has no message yet, else all ones
	Bytes     uint64 // of the message; of a receive, of its buffer; else 0
	State     string // for people
}

// UnfinishedKind says what is unfinished.
type UnfinishedKind uint8

// Kinds of Unfinished.
const (
	UnfinishedSend UnfinishedKind = iota
	UnfinishedRecv
	UnfinishedAlloc // RecvAlloc, without a message
	UnfinishedProbe
	UnfinishedMessage // that no receive has matched
)

// Unfinished counts what is unfinished. It takes time and memory in proportion to that.
func (e *Engine) Unfinished() map[Unfinished]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := map[Unfinished]int{}
	for op := range e.opsLocked() {
		if op.state != opAbandoned { // its receive has ended
			list[op.unfinished()]++
		}
	}
	for m := range e.unexp.All() {
		u := Unfinished{UnfinishedMessage, int(m.Src), m.Tag, ^uint64(0), uint64(len(m.Data)), "no receive has matched it"}
		if m.Rndv {
			u.Bytes = m.Len
		}
		list[u]++
	}
	return list
}

func (op *Op) unfinished() Unfinished {
	mask := op.wanted()
	u := Unfinished{UnfinishedRecv, max(op.peer, AnySource), op.tag & mask, mask, uint64(op.room()), "no message"}
	switch {
	case op.allocates():
		u.Kind = UnfinishedAlloc
	case op.kind.probe():
		u.Kind = UnfinishedProbe
	}
	switch op.state {
	case opQueued:
		u.Kind, u.State = UnfinishedSend, "not sent"
	case opRequested:
		u.Kind, u.State = UnfinishedSend, "not received"
	case opWithdrawing:
		u.Kind, u.State = UnfinishedSend, "canceled, and the receiver has not answered"
	case opMatched, opReading:
		u.Peer, u.State = op.read.src, "its message is being received"
	}
	return u
}

// wanted is the mask beside op.tag: all ones where that is the tag of a message.
func (op *Op) wanted() uint64 {
	switch op.state {
	case opPosted, opOffloaded, opCancelling:
		return op.mask
	}
	return ^uint64(0)
}

// allocates reports whether a posted receive is a RecvAlloc, which is a matched probe first.
func (op *Op) allocates() bool { return op.message != nil && op.message.alloc }

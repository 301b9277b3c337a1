package progress

// Unfinished describes operations of this rank that have not ended, or messages that no receive has
// matched: those alike in all that is known of them.
type Unfinished struct {
	Kind      UnfinishedKind
	Peer      int    // in the World; AnySource: any
	Tag, Mask uint64 // the mask is that of a receive that has no message yet, else all ones
	Bytes     uint64 // of the message; of a receive, of its buffer
	State     string // for people
}

// UnfinishedKind says what is unfinished.
type UnfinishedKind uint8

// Kinds of Unfinished.
const (
	UnfinishedSend UnfinishedKind = iota
	UnfinishedRecv
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
	u := Unfinished{UnfinishedRecv, max(op.peer, AnySource), op.tag, op.mask, uint64(op.room()), "no message"}
	if op.kind.probe() {
		u.Kind = UnfinishedProbe
	}
	switch op.state {
	case opQueued:
		u.Kind, u.Mask, u.State = UnfinishedSend, ^uint64(0), "not sent"
	case opRequested:
		u.Kind, u.Mask, u.State = UnfinishedSend, ^uint64(0), "not received"
	case opWithdrawing, opTaken:
		u.Kind, u.Mask, u.State = UnfinishedSend, ^uint64(0), "canceled, and the receiver has not answered"
	case opMatched, opReading:
		u.Peer, u.Mask, u.State = op.read.src, ^uint64(0), "its message is being received"
	}
	return u
}

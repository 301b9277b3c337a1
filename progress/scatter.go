package progress

import (
	"github.com/tagmatch/tagmatch/internal/fault"
	"github.com/tagmatch/tagmatch/transport"
)

// A long message for several parts is read in pieces, in order: straight into a long part, or into
// a stage, from which short parts are filled once it has come. The reads of a peer's memory end in
// the order in which they were posted.

const (
	longPart   = 16 << 10  // bytes of a part that is worth a read of its own
	stageSize  = 256 << 10 // so much of a message still fits a processor's cache
	keptStages = 8         // in the pool
)

// stage is memory of the engine for a piece of a message.
type stage struct {
	buf   [stageSize]byte
	n     int    // bytes of the piece
	begin place  // of the piece, in the parts
	read  uint32 // which of the receive's reads brings it; 0: none does yet
}

// place is a place in the parts of a vector.
type place struct{ part, skip int }

// scattering is how far the reads of a vector are.
type scattering struct {
	pos    place     // behind what reads were posted for
	behind place     // the target
	stages [2]*stage // that are in use, the older one first
	reads  uint32    // that were posted
	ended  uint32
}

// rest is what is behind place p of the part there.
func (v *vector) rest(p place) []byte { return v.parts[p.part][p.skip:] }

// target is where the next read of at most n bytes of op's message goes; nil: that has to wait for
// others. One of postedRead and unpostedRead must follow.
func (op *Op) target(n uint64) []byte {
	v := op.vec
	if v == nil {
		buf := op.buf[op.read.posted:]
		return buf[:n:n]
	}
	for len(v.rest(v.pos)) == 0 {
		v.pos = place{part: v.pos.part + 1}
	}
	if part := v.rest(v.pos); len(part) >= longPart {
		n = min(n, uint64(len(part)))
		v.behind = place{v.pos.part, v.pos.skip + int(n)}
		return part[:n:n]
	}
	free := 0
	for ; v.stages[free] != nil; free++ {
		if free == len(v.stages)-1 {
			return nil
		}
	}
	s := op.e.stages.take()
	s.begin = v.pos
	s.n, v.behind = v.short(int(min(n, stageSize)))
	v.stages[free] = s
	return s.buf[:s.n:s.n]
}

// short is how many bytes, at most most, are in short parts from v.pos on, which is in one, and the
// place behind them.
func (v *vector) short(most int) (n int, behind place) {
	n, behind = len(v.rest(v.pos)), place{v.pos.part, len(v.parts[v.pos.part])}
	for n < most && behind.part+1 < len(v.parts) && len(v.parts[behind.part+1]) < longPart {
		behind = place{behind.part + 1, len(v.parts[behind.part+1])}
		n += behind.skip
	}
	if n > most {
		behind.skip -= n - most
	}
	return min(n, most), behind
}

// newest is the stage that target has taken last, if no read was posted for it.
func (v *vector) newest() **stage {
	for i := range v.stages {
		if s := v.stages[i]; s != nil && s.read == 0 {
			return &v.stages[i]
		}
	}
	return nil
}

// postedRead says that a read to the target was posted.
func (op *Op) postedRead() {
	v := op.vec
	if v == nil {
		return
	}
	v.reads++
	if s := v.newest(); s != nil {
		(*s).read = v.reads
	}
	v.pos = v.behind
}

// unpostedRead says that there was no room for the read.
func (op *Op) unpostedRead() {
	if op.vec == nil {
		return
	}
	if s := op.vec.newest(); s != nil {
		op.e.stages.drop(*s)
		*s = nil
	}
}

// arrived fills the parts that a read which has ended has brought.
func (op *Op) arrived() {
	v := op.vec
	v.ended++
	s := v.stages[0]
	if s == nil || s.read != v.ended {
		return
	}
	if op.read.err == nil && !fault.Guard(func() { v.fill(s) }) {
		op.read.err = transport.ErrUnwritable
	}
	v.stages[0], v.stages[1] = v.stages[1], nil
	s.read = 0
	op.e.stages.drop(s)
}

// fill copies a piece out of its stage.
func (v *vector) fill(s *stage) {
	n := copy(v.rest(s.begin), s.buf[:s.n])
	scatter(v.parts[s.begin.part+1:], s.buf[n:s.n])
}

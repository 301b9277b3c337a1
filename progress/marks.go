package progress

import (
	"slices"
	"time"
)

// mark is how far an engine had come at some time: what was posted or had arrived by then is at
// least as old. Marks are made before a goroutine sleeps, and by looks. So an engine that has come
// to rest knows since when.
type mark struct {
	at      time.Time
	begun   uint64 // operations
	posted  uint64 // matching.Posted.NextSeq
	arrived uint64 // unexpected.Queue.LastSeq
	moved   uint64 // Engine.movedLocked
}

const (
	markEvery = time.Second // apart, at least, but for the newest one
	mostMarks = 64
)

// marks are in order of time, each with more moved than the one before. All are guarded by the
// engine's lock.
type marks []mark

// add adds a mark by which more has moved than by the last one. Where there are many every second
// one goes: ages become coarser as they grow.
func (l *marks) add(m mark) {
	n := len(*l)
	switch {
	case n > 1 && m.at.Sub((*l)[n-2].at) < markEvery:
		(*l)[n-1] = m
		return
	case n == mostMarks:
		n = 0
		for i := 0; i < mostMarks; i += 2 {
			(*l)[n] = (*l)[i]
			n++
		}
		*l = (*l)[:n]
	}
	*l = append(*l, m)
}

// since is when the first mark was made by which count had come to n, if there is one.
func (l marks) since(n uint64, count func(*mark) uint64) (at time.Time, ok bool) {
	i, _ := slices.BinarySearchFunc(l, n, func(m mark, n uint64) int {
		if count(&m) < n {
			return -1
		}
		return 0
	})
	if i == len(l) {
		return at, false
	}
	return l[i].at, true
}

// markLocked makes a mark, unless nothing has moved since the last one.
func (e *Engine) markLocked(at time.Time) {
	moved := e.movedLocked()
	if n := len(e.marks); n != 0 && e.marks[n-1].moved == moved {
		return
	}
	e.marks.add(mark{at, e.entered[opNew], e.posted.NextSeq(), e.unexp.LastSeq(), moved})
}

// Moved is Look.Moved alone. Who calls it now and then has Look know since when nothing has moved
// also where no goroutine sleeps.
func (e *Engine) Moved() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.markLocked(time.Now())
	return e.movedLocked()
}

// movedLocked counts all that has moved, by what is counted anyway.
func (e *Engine) movedLocked() uint64 {
	m := &e.m
	return e.entered.moves() + m.EagerSent + m.EagerReceived + m.RndvReceived + m.Unexpected + m.PeersLost + m.WantsSent + m.WantsReceived
}

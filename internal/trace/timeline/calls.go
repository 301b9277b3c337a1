package timeline

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/tagmatch/tagmatch/internal/trace"
)

func (r *reader) readCall(e *trace.Record) {
	switch e.Kind {
	case trace.Call:
		op := r.ops[e.Op]
		if op == nil { // a probe
			op = &operation{begin: r.now, name: "Probe", peer: -1}
			r.ops[e.Op] = op
		}
		r.begin(e.Op, op.slice(op.name, op.begin, 0))
	case trace.Wait:
		r.begin(e.Op, Slice{Name: "Wait", Begin: r.now, Peer: -1})
	case trace.Returned:
		if c := r.waiting(e.Op); c != nil {
			r.endCall(e.Op, c)
		}
	case trace.Parked:
		r.park(e.Op)
	case trace.Woken:
		r.woken(e.Op)
	case trace.Asleep:
		r.asleep = r.now
	case trace.Awake:
		if r.asleep != 0 {
			r.did.Sleeps = append(r.did.Sleeps, Slice{Name: "asleep", Begin: r.asleep, End: r.now, Peer: -1})
		}
		r.asleep = 0
	}
}

func (r *reader) begin(name uint64, s Slice) *call {
	c := &call{Slice: s}
	r.waits[name] = append(r.waits[name], c)
	return c
}

// waiting is the call that began to wait for something last.
func (r *reader) waiting(name uint64) *call {
	if list := r.waits[name]; len(list) != 0 {
		return list[len(list)-1]
	}
	return nil
}

// park has a call sleep. One that began before the recording is known only while it does.
func (r *reader) park(name uint64) {
	for _, c := range r.waits[name] {
		if c.asleep == 0 {
			c.asleep = r.now
			return
		}
	}
	c := r.begin(name, Slice{Name: "call", Begin: r.now, Peer: -1})
	c.asleep, c.over = r.now, true
}

func (r *reader) woken(name uint64) {
	for _, c := range r.waits[name] {
		if c.asleep == 0 {
			continue
		}
		if r.wake(c); c.over {
			r.endCall(name, c)
		}
		return
	}
}

func (r *reader) wake(c *call) {
	if c.asleep != 0 {
		c.Inner = append(c.Inner, Slice{Name: "parked", Begin: c.asleep, End: r.now, Peer: -1})
	}
	c.asleep = 0
}

func (r *reader) endCall(name uint64, c *call) {
	r.endCalls(name, func(o *call) bool { return o == c })
}

// endCalls ends those of the calls that wait for something of which that is so.
func (r *reader) endCalls(name uint64, so func(*call) bool) {
	list := slices.DeleteFunc(r.waits[name], func(c *call) bool {
		if !so(c) {
			return false
		}
		c.End = r.now
		r.did.Calls = append(r.did.Calls, c.Slice)
		return true
	})
	if len(list) == 0 {
		delete(r.waits, name)
	} else {
		r.waits[name] = list
	}
}

// lanes divides slices, in order of their begins, among as few tracks as there are at a time. Each
// gets the first one that is free.
func lanes(list []Slice) (tracks [][]Slice) {
	var busy, free lanesHeap
	for _, s := range list {
		for len(busy) > 0 && busy[0].until <= s.Begin {
			heap.Push(&free, lane{number: heap.Pop(&busy).(lane).number})
		}
		l := lane{until: s.End, number: len(tracks)}
		if len(free) > 0 {
			l.number = heap.Pop(&free).(lane).number
		} else {
			tracks = append(tracks, nil)
		}
		tracks[l.number] = append(tracks[l.number], s)
		heap.Push(&busy, l)
	}
	return tracks
}

// lane is a track.
type lane struct {
	until  int64 // when its last slice ends; 0 of those that are free
	number int
}

// lanesHeap is a heap, with the one on top that is free first.
type lanesHeap []lane

func (h lanesHeap) Len() int      { return len(h) }
func (h lanesHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h lanesHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].until, h[j].until), h[i].number-h[j].number) < 0
}
func (h *lanesHeap) Push(x any) { *h = append(*h, x.(lane)) }
func (h *lanesHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

package matching

import (
	"cmp"
	"container/heap"
	"slices"
)

// returned is the receives that are back in their places in the order, in any of them: each key has
// a heap by sequence number beside slab, tables and ring, which only grow at their ends. So putting
// one back takes logarithmic time, whatever was posted later. It is there while it has entries.
type returned[T any] struct {
	byHandle map[Handle]*back[T]
	byWhat   map[what]*heapOf[T]
	masks    []maskUse // those of byWhat
}

// what identifies receives that match the same tags.
type what struct{ tag, mask uint64 } // no bit of the tag is outside the mask

type maskUse struct {
	mask uint64
	n    int // keys of byWhat
}

// back is a receive that is back.
type back[T any] struct {
	what
	h   Handle // another one each time that the receive is back, of no entry of the slab
	seq Seq
	at  int // in its heap
	v   T
}

// heapOf is the receives of a key, the oldest first.
type heapOf[T any] []*back[T]

func (h heapOf[T]) Len() int           { return len(h) }
func (h heapOf[T]) Less(i, j int) bool { return h[i].seq < h[j].seq }

func (h heapOf[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *heapOf[T]) Push(x any) {
	b := x.(*back[T])
	b.at = len(*h)
	*h = append(*h, b)
}

func (h *heapOf[T]) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}

func (r *returned[T]) add(b *back[T]) {
	h := r.byWhat[b.what]
	if h == nil {
		h = new(heapOf[T])
		r.byWhat[b.what] = h
		r.use(b.mask).n++
	}
	heap.Push(h, b)
	r.byHandle[b.h] = b
}

// use is how many keys have a mask.
func (r *returned[T]) use(mask uint64) *maskUse {
	k := slices.IndexFunc(r.masks, func(u maskUse) bool { return u.mask == mask })
	if k < 0 {
		k = len(r.masks)
		r.masks = append(r.masks, maskUse{mask: mask})
	}
	return &r.masks[k]
}

func (r *returned[T]) remove(b *back[T]) {
	h := r.byWhat[b.what]
	heap.Remove(h, b.at)
	delete(r.byHandle, b.h)
	if len(*h) != 0 {
		return
	}
	delete(r.byWhat, b.what)
	u := r.use(b.mask)
	if u.n--; u.n == 0 {
		last := len(r.masks) - 1
		*u = r.masks[last]
		r.masks = r.masks[:last]
	}
}

// oldest returns the oldest one that matches, or nil.
func (r *returned[T]) oldest(tag uint64) (oldest *back[T]) {
	for _, u := range r.masks {
		if h := r.byWhat[what{tag & u.mask, u.mask}]; h != nil && (oldest == nil || (*h)[0].seq < oldest.seq) {
			oldest = (*h)[0]
		}
	}
	return oldest
}

// overlapping is Posted.Overlapping among these.
func (r *returned[T]) overlapping(tag, mask uint64, before Seq) bool {
	scan := false
	for _, u := range r.masks {
		if u.mask&^mask != 0 {
			scan = true
		} else if h := r.byWhat[what{tag & u.mask, u.mask}]; h != nil && (*h)[0].seq < before {
			return true
		}
	}
	if !scan {
		return false
	}
	budget := overlapBudget
	for w, h := range r.byWhat {
		if budget--; budget < 0 || (*h)[0].seq < before && Overlap(tag, mask, w.tag, w.mask) {
			return true
		}
	}
	return false
}

// Skip takes a place in the order for a receive that Return may put there, and returns a handle of
// no entry.
func (q *Posted[T]) Skip() Handle {
	q.seq++
	return makeHandle(0, q.seq-1)
}

// Place is the sequence number of a handle, also of a stale one: the last below NextSeq that it may
// have.
func (q *Posted[T]) Place(h Handle) Seq {
	return q.seq - (q.seq-uint64(h>>indexBits))&genMask
}

// Return puts a receive that has left the queue back into its place in the order, in logarithmic
// time. The place is that of its last handle, or of a Skip, and below NextSeq.
func (q *Posted[T]) Return(place Seq, tag, mask uint64, v T) Handle {
	if q.back == nil {
		q.back = &returned[T]{byHandle: map[Handle]*back[T]{}, byWhat: map[what]*heapOf[T]{}}
	}
	q.returns++
	b := &back[T]{what: what{tag & mask, mask}, h: makeHandle(^q.returns&indexMask, place), seq: place, v: v}
	q.back.add(b)
	q.n++
	q.total++
	return b.h
}

// isBack returns the receive of a handle if it is back in its place, or nil.
func (q *Posted[T]) isBack(h Handle) *back[T] {
	if q.back == nil {
		return nil
	}
	return q.back.byHandle[h]
}

// leave removes a receive that was back in its place.
func (q *Posted[T]) leave(b *back[T]) T {
	q.back.remove(b)
	q.n--
	q.total--
	if len(q.back.byHandle) == 0 {
		q.back = nil
	}
	return b.v
}

// firstBack returns the oldest match if it is one that is back in its place, or nil.
func (q *Posted[T]) firstBack(tag uint64) *back[T] {
	b := q.back.oldest(tag)
	if b == nil {
		return nil
	}
	if _, h, ok := q.findOther(tag); ok {
		if seq, _ := q.Seq(h); seq < b.seq {
			return nil
		}
	}
	return b
}

// allBeside is All where receives are back in their places.
func (q *Posted[T]) allBeside(yield func(Handle, T) bool) {
	all := make([]placed, 0, q.total)
	for i := range q.walk() {
		all = append(all, placed{q.node(i).seq, q.handle(i)})
	}
	for h, b := range q.back.byHandle {
		all = append(all, placed{b.seq, h})
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Compare(a.seq, b.seq) })
	for _, p := range all {
		if v, ok := q.get(p.h); ok && !yield(p.h, v) {
			return
		}
	}
}

type placed struct {
	seq Seq
	h   Handle
}

// get returns the receive of a handle, in the tables or back in its place.
func (q *Posted[T]) get(h Handle) (v T, ok bool) {
	if b := q.isBack(h); b != nil {
		return b.v, true
	}
	if i := q.resolve(h); i != 0 {
		return q.vals.get(i), true
	}
	return v, false
}

package unexpected

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tagmatch/tagmatch/matching"
)

// Queue holds the unexpected messages of one rank.
type Queue struct {
	inv      queueCheck
	arrived  *matching.Unexpected[*Message] // all but requeued, by order of arrival
	requeued []*Message                     // requests, by order of arrival: arrived can only append
	sources  []*source                      // by rank; nil until one has sent a request
	seq      uint64                         // of the message that arrived last
	bytes    int64                          // the sum of Cost of all messages that are not dropped
	peak     int64                          // the most that bytes ever was
	buffers  buffers
	records  records
}

// source is the requests of one rank that are in the queue.
type source struct {
	newest *Message            // the rest by next
	named  map[uint32]*Message // by Name; nil until one is withdrawn, and again once there is none
}

// New returns an empty queue for messages of the ranks below size. limit is how many bytes of
// messages the caller means to keep, but at least 1 MiB; the memory of dropped messages is kept by
// it. The seed keys the hash tables, see matching.NewUnexpected.
func New(size int, limit int64, seed uint64) *Queue {
	limit = max(limit, 1<<20)
	q := &Queue{arrived: matching.NewUnexpected[*Message](seed), sources: make([]*source, size)}
	q.buffers.init(limit)
	q.records.most = limit / RecordCost
	return q
}

// Len is the number of messages.
func (q *Queue) Len() int { return q.arrived.Len() + len(q.requeued) }

// Memory is the bytes that the messages take, as their costs count them, and the most that there
// ever were.
func (q *Queue) Memory() (now, peak int64) { return q.bytes, q.peak }

// NextSeq numbers a message that arrives. KeepEager calls it itself; the caller numbers requests,
// since one that is matched at once is not kept, but may be requeued.
func (q *Queue) NextSeq() uint64 {
	q.seq++
	return q.seq
}

// LastSeq is what NextSeq has given last.
func (q *Queue) LastSeq() uint64 { return q.seq }

// KeepEager appends a copy of an eager message that arrives.
func (q *Queue) KeepEager(src int, tag uint64, payload []byte) {
	m := q.records.get()
	m.Src, m.Tag, m.Seq, m.Rndv = int32(src), tag, q.NextSeq(), false
	m.Data = q.buffers.get(len(payload))
	copy(m.Data, payload)
	q.arrived.Add(tag, m)
	q.count(EagerCost(len(payload)))
}

// KeepRequest appends a rendezvous request that arrives: seq is the last NextSeq.
func (q *Queue) KeepRequest(src int, tag, seq uint64, r Request) {
	m := q.request(src, tag, seq, r)
	m.handle = q.arrived.Add(tag, m)
	q.count(RecordCost)
}

// Requeue puts a request that was matched back to its place by seq. It costs nothing any more.
func (q *Queue) Requeue(src int, tag, seq uint64, r Request) {
	m := q.request(src, tag, seq, r)
	i, _ := slices.BinarySearchFunc(q.requeued, seq, func(m *Message, seq uint64) int { return cmp.Compare(m.Seq, seq) })
	q.requeued = slices.Insert(q.requeued, i, m)
}

// request makes the record of a request and gives it to its source.
func (q *Queue) request(src int, tag, seq uint64, r Request) *Message {
	m := q.records.get()
	m.Src, m.Tag, m.Seq, m.Rndv, m.Request, m.handle = int32(src), tag, seq, true, r, 0
	s := q.sources[src]
	if s == nil {
		s = new(source)
		q.sources[src] = s
	}
	if m.next = s.newest; m.next != nil {
		m.next.prev = m
	}
	s.newest = m
	q.inv.request(m)
	if s.named != nil {
		s.named[r.Name] = m
	}
	return m
}

// count accounts for a message that is kept.
func (q *Queue) count(cost uint64) {
	q.bytes += int64(cost)
	q.peak = max(q.peak, q.bytes)
}

// Find finds the oldest message whose tag t satisfies (t^tag)&mask == 0, and leaves it in the
// queue.
func (q *Queue) Find(tag, mask uint64) (*Message, bool) {
	m, _, ok := q.arrived.Find(tag, mask)
	if i := q.findRequeued(tag, mask); i >= 0 && !(ok && m.Seq < q.requeued[i].Seq) {
		return q.requeued[i], true
	}
	return m, ok
}

func (q *Queue) findRequeued(tag, mask uint64) int {
	return slices.IndexFunc(q.requeued, func(m *Message) bool { return (m.Tag^tag)&mask == 0 })
}

// Match takes the oldest message out of the queue whose tag t satisfies (t^tag)&mask == 0. The
// caller drops it, at once or later: until then its memory counts, and its Data stays.
func (q *Queue) Match(tag, mask uint64) (m *Message, ok bool) {
	if q.arrived.Len()+len(q.requeued) != 0 { // this form is inlined
		m, ok = q.match(tag, mask)
	}
	return m, ok
}

// match is Match in a queue that is not empty.
func (q *Queue) match(tag, mask uint64) (*Message, bool) {
	m, ok := q.matchEither(tag, mask)
	q.inv.match(q, tag, mask, m)
	return m, ok
}

// matchEither is Match among the messages in both lists.
func (q *Queue) matchEither(tag, mask uint64) (*Message, bool) {
	i := -1
	if len(q.requeued) != 0 {
		i = q.findRequeued(tag, mask)
	}
	if i < 0 {
		return q.arrived.Match(tag, mask)
	}
	m := q.requeued[i]
	if u, h, ok := q.arrived.Find(tag, mask); ok && u.Seq < m.Seq {
		return q.arrived.Remove(h)
	}
	q.requeued = slices.Delete(q.requeued, i, i+1)
	return m, true
}

// Drop frees a message that Match has taken out, and returns its cost.
func (q *Queue) Drop(m *Message) (cost uint64) {
	q.inv.drop(m)
	cost = m.Cost()
	q.bytes -= int64(cost)
	if m.Rndv {
		q.unlink(m)
	} else {
		q.buffers.put(m.Data)
		m.Data = nil
	}
	q.records.put(m)
	return cost
}

// unlink takes a request from its source.
func (q *Queue) unlink(m *Message) {
	s := q.sources[m.Src]
	if m.prev == nil {
		s.newest = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	}
	m.next, m.prev = nil, nil
	if s.newest == nil {
		s.named = nil
	} else if s.named[m.Name] == m {
		delete(s.named, m.Name)
	}
}

// Withdraw drops the request that its source calls by this name and returns its cost; false where
// there is none.
func (q *Queue) Withdraw(src int, name uint32) (cost uint64, ok bool) {
	m := q.sources[src].find(name)
	if m == nil {
		return 0, false
	}
	return q.remove(m), true
}

// find finds a request by its name. The index that it makes is a part of RecordCost.
func (s *source) find(name uint32) *Message {
	if s == nil {
		return nil
	}
	if s.named == nil && s.newest != nil {
		s.named = map[uint32]*Message{}
		for m := s.newest; m != nil; m = m.next {
			if s.named[m.Name] == nil { // the newest of a name, as where there is an index already
				s.named[m.Name] = m
			}
		}
	}
	return s.named[name]
}

// DropLost drops all requests of a source that nobody can read any more, and the eager messages
// behind one of the same space: a receive would take them for what it never gets. It returns the
// cost of all. Other eager messages stay. space is equal for tags that one receive could match.
func (q *Queue) DropLost(src int, space func(tag uint64) uint64) (cost uint64) {
	s := q.sources[src]
	if s == nil || s.newest == nil {
		return 0
	}
	first := map[uint64]uint64{} // Seq of the oldest request, by space
	for s.newest != nil {
		m := s.newest
		if seq, ok := first[space(m.Tag)]; !ok || m.Seq < seq {
			first[space(m.Tag)] = m.Seq
		}
		cost += q.remove(m)
	}
	for h, m := range q.arrived.All() {
		if seq, ok := first[space(m.Tag)]; ok && int(m.Src) == src && m.Seq > seq {
			q.arrived.Remove(h)
			cost += q.Drop(m)
		}
	}
	return cost
}

// remove drops a request that is in the queue.
func (q *Queue) remove(m *Message) (cost uint64) {
	if m.handle != 0 {
		q.arrived.Remove(m.handle)
	} else if i := slices.Index(q.requeued, m); i >= 0 {
		q.requeued = slices.Delete(q.requeued, i, i+1)
	}
	return q.Drop(m)
}

// All walks the messages by order of arrival. The body does not change the queue.
func (q *Queue) All() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		rest := q.requeued
		for _, m := range q.arrived.All() {
			for ; len(rest) != 0 && rest[0].Seq < m.Seq; rest = rest[1:] {
				if !yield(rest[0]) {
					return
				}
			}
			if !yield(m) {
				return
			}
		}
		for _, m := range rest {
			if !yield(m) {
				return
			}
		}
	}
}

// Walk visits the messages in parts, between which the queue may change: those that are there all
// the time once, and none that comes after the beginning. One that is matched and requeued
// meanwhile may be visited twice.
type Walk struct {
	q      *Queue
	last   uint64 // Seq of the newest message at the beginning
	from   uint32 // in arrived
	behind bool   // those in arrived were visited
	seq    uint64 // of the requeued one that was visited last
}

// Walk begins a walk.
func (q *Queue) Walk() Walk { return Walk{q: q, last: q.seq} }

// Part visits up to most messages and reports whether there may be more. The body does not change
// the queue.
func (w *Walk) Part(most int, visit func(*Message)) (more bool) {
	if !w.behind {
		w.from = w.q.arrived.Part(w.from, most, func(_ matching.Seq, m *Message) {
			if m.Seq <= w.last {
				visit(m)
			}
		})
		w.behind = w.from == 0
		return true
	}
	i, _ := slices.BinarySearchFunc(w.q.requeued, w.seq+1, func(m *Message, seq uint64) int { return cmp.Compare(m.Seq, seq) })
	rest := w.q.requeued[i:]
	for _, m := range rest[:min(most, len(rest))] {
		w.seq = m.Seq
		visit(m)
	}
	return len(rest) > most
}

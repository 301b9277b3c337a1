package matching

// Walks in parts, for those who must not keep a queue for long. They go by the places of entries in
// memory, which these keep for as long as they are in the queue: so what is there all the time is
// visited once, whatever comes and goes between two parts. What comes meanwhile may be visited or
// not: sequence numbers tell.

// placesOfPart is how many places without an entry a part may look at.
const placesOfPart = 1 << 12

// Part visits up to most receives, in any order, and returns where the next part begins; 0: there
// is none. The first begins at 0. Receives that are back in their places come in one part. The body
// must not change the queue.
func (q *Posted[T]) Part(from uint32, most int, visit func(Seq, T)) (next uint32) {
	if from == 0 && q.back != nil {
		for _, b := range q.back.byHandle {
			visit(b.seq, b.v)
		}
	}
	return part(&q.ring, q.vals, from, most, visit)
}

// Part is that of Posted, for messages.
func (q *Unexpected[T]) Part(from uint32, most int, visit func(Seq, T)) (next uint32) {
	return part(&q.ring, q.vals, from, most, visit)
}

// part visits entries from place from on: those of the tables, and those of the ring at the places
// that are reserved for them.
func part[T any](r *ring[T], vals values[T], from uint32, most int, visit func(Seq, T)) (next uint32) {
	s := r.to.slab
	i, end := max(from, 1), uint32(len(s.nodes))<<chunkBits
	for looked := 0; i < end; i++ {
		if most <= 0 || looked >= placesOfPart {
			return i
		}
		if k := r.position(i); k != r.tail {
			visit(r.at(k).seq, r.at(k).v)
			most--
		} else if s.used(i) {
			visit(s.node(i).seq, vals.get(i))
			most--
		} else {
			looked++
		}
	}
	return 0
}

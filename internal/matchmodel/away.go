package matchmodel

import (
	"encoding/binary"
	"iter"
	"maps"
	"slices"
)

// A message that its sender withdraws may do nothing, or be a receive's for a time: of the first
// that matches when it arrives, or of one that is posted, or goes back, later. Others do not wait
// for the time when that receive is back.

// behind is a receive that went back when so many were posted.
type behind struct{ recv, posted int }

// until is how many messages the sender of m had sent when it had m back; 0: it was not withdrawn.
func (s *search) until(m message) int {
	if w := s.h.Withdrawn; m.src < len(w) && m.seq < len(w[m.src]) {
		return w[m.src][m.seq]
	}
	return 0
}

func (s *search) withdrawn(m message) bool { return s.until(m) != 0 }

// there reports whether a message that will be withdrawn, and has arrived, may still be had.
func (s *search) there(m message) bool {
	return s.returns > 0 && s.withdrawn(m) && !s.used[m] && s.next[m.src] <= s.until(m)
}

// before reports whether m was sent after a receive had gone back that is not back here.
func (s *search) before(m message) bool {
	for _, had := range s.away {
		if had.src == m.src && s.until(had) <= m.seq {
			return true
		}
	}
	return false
}

func (s *search) isAway(recv int) bool {
	_, away := s.away[recv]
	return away
}

// mayLeave reports whether a receive may get a message that is withdrawn.
func (s *search) mayLeave(r *Recv) bool {
	for src := range s.h.Withdrawn {
		for seq := range s.h.Messages[src] {
			if m := (message{src, seq}); s.there(m) && r.accepts(src, s.tag(m)) {
				return true
			}
		}
	}
	return false
}

// leave continues with a message, which will be withdrawn, at a receive.
func (s *search) leave(recv int, m message) bool {
	if s.returns == 0 {
		return false
	}
	s.returns--
	s.away[recv], s.used[m] = m, true
	ok := s.run()
	s.returns++
	delete(s.away, recv)
	delete(s.used, m)
	return ok
}

// lookAway tries that a receive finds a message that will be withdrawn and came before others.
func (s *search) lookAway(recv, before int) bool {
	for src := range s.h.Withdrawn {
		for seq := range s.next[src] {
			m := message{src, seq}
			if s.there(m) && s.arrived[m] < before && s.h.Recvs[recv].accepts(src, s.tag(m)) && s.leave(recv, m) {
				return true
			}
		}
	}
	return false
}

// backAny tries that a receive goes back.
func (s *search) backAny() bool {
	return slices.ContainsFunc(slices.Sorted(maps.Keys(s.away)), s.back)
}

func (s *search) back(recv int) bool {
	m := s.away[recv]
	delete(s.away, recv)
	ok := s.look(recv)
	if !ok && s.h.Behind {
		old := s.behind
		s.behind = append(slices.DeleteFunc(slices.Clone(old), func(b behind) bool { return b.recv == recv }), behind{recv, s.posted})
		ok = s.look(recv)
		s.behind = old
	}
	s.away[recv] = m
	return ok
}

// order yields the posted receives in the order in which they may get a message.
func (s *search) order() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i <= s.posted; i++ {
			for _, b := range s.behind {
				if b.posted == i && !yield(b.recv) {
					return
				}
			}
			moved := slices.ContainsFunc(s.behind, func(b behind) bool { return b.recv == i })
			if i < s.posted && !moved && !yield(i) {
				return
			}
		}
	}
}

// awayKey encodes what a search knows of withdrawn messages.
func (s *search) awayKey(b []byte) []byte {
	b = append(b, byte(s.returns))
	for _, recv := range slices.Sorted(maps.Keys(s.away)) {
		m := s.away[recv]
		b = append(b, 1, byte(recv), byte(m.src), byte(m.seq))
	}
	for src := range s.h.Withdrawn {
		for seq := range s.next[src] {
			if m := (message{src, seq}); s.there(m) {
				before := 0
				for _, u := range s.unexp {
					if s.arrived[u] < s.arrived[m] {
						before++
					}
				}
				b = binary.AppendUvarint(append(b, 2, byte(src), byte(seq)), uint64(before))
			}
		}
	}
	for _, at := range s.behind {
		b = append(b, 3, byte(at.recv), byte(at.posted))
	}
	return b
}

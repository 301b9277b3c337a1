package door

import "sync"

// NonceSize is the size of a Nonce in bytes.
const NonceSize = 32

// Nonce is the random number in a greeting.
type Nonce = [NonceSize]byte

// Nonces remembers the nonces of greetings, so that one which was recorded is worth nothing to who
// sends it again. The zero Nonces has none.
type Nonces struct {
	mu   sync.Mutex
	seen map[Nonce]struct{}
	ring []Nonce // the same, in the order in which they came, from next on
	next int
}

// maxNonces is how many are remembered. Only greetings of the job are: of a job with as many ranks
// each can dial once before its first one is forgotten.
const maxNonces = 1 << 12

// Fresh reports whether n is seen for the first time. n is of a greeting whose MAC was checked.
func (s *Nonces) Fresh(n Nonce) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[n]; ok {
		return false
	}
	if s.seen == nil {
		s.seen = map[Nonce]struct{}{}
	}
	s.seen[n] = struct{}{}
	if len(s.ring) < maxNonces {
		s.ring = append(s.ring, n)
		return true
	}
	delete(s.seen, s.ring[s.next])
	s.ring[s.next] = n
	s.next = (s.next + 1) % maxNonces
	return true
}

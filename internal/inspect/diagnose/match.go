package diagnose

import (
	"github.com/tagmatch/tagmatch/internal/inspect"
)

// compareMost bounds how many pairs of receives and messages of one rank are compared, where a
// table does not find them: a rank with more is not accused of anything.
const compareMost = 1 << 16

const tooMany = "it has too many receives and messages to compare them"

// incoming is a send to a rank that has not ended.
type incoming struct {
	src int // rank
	*inspect.Send
}

// exact names messages of one source with one tag.
type exact struct {
	dst, src int // ranks
	comm     string
	tag      uint64
}

// request names announced messages that are alike.
type request struct {
	exact
	bytes uint64
}

// matches reports whether a receive takes a message, as far as Comm and tag say.
func matches(want, has inspect.Key) bool {
	switch {
	case want.Comm != has.Comm:
		return false
	case want.Any:
		return true
	case want.Mask == 0:
		return want.Tag == has.Tag
	}
	return (want.Tag^has.Tag)&want.Mask == 0
}

// comesFrom reports whether a receive takes messages of a rank.
func comesFrom(r *inspect.Receive, src int) bool {
	if r.Peer != inspect.Any || len(r.From) == 0 {
		return r.Peer == inspect.Any || r.Peer == src
	}
	for _, from := range r.From {
		if from == src {
			return true
		}
	}
	return false
}

// indexMessages lists the sends by their destinations, and counts the messages by what they bear.
func (j *job) indexMessages() {
	j.incoming = make([][]incoming, len(j.members))
	j.supplied, j.requests = map[exact]bool{}, map[request]int{}
	for i := range j.members {
		m := &j.members[i]
		for k := range m.Sends {
			s := &m.Sends[k]
			if dst, ok := j.index[s.Peer]; ok {
				j.incoming[dst] = append(j.incoming[dst], incoming{m.Rank, s})
				j.supplied[exact{s.Peer, m.Rank, s.Comm, s.Tag}] = true
			}
		}
		for _, msg := range m.Messages {
			key := exact{m.Rank, msg.Peer, msg.Comm, msg.Tag}
			j.supplied[key] = true
			if !msg.Eager {
				j.requests[request{key, msg.Bytes}] += msg.N
			}
		}
	}
}

// indexFlights finds between which ranks messages may be under way: what one has sent is not what
// the other has taken in.
func (j *job) indexFlights() {
	j.flights = make([][]int, len(j.members))
	for i := range j.members {
		m := &j.members[i]
		for _, p := range m.peers {
			other, ok := j.index[p.Rank]
			if !ok {
				continue
			}
			back := j.members[other].peer(m.Rank)
			if p.Sent != back.Came {
				j.flights[other] = append(j.flights[other], i)
			}
			if back == &noPeer && p.Came != 0 {
				j.flights[i] = append(j.flights[i], other)
			}
		}
	}
}

// supplies says why a receive of a member may be satisfied without anybody's doing anything: a send
// for it was begun, or a message is here. It is empty where there is none.
func (j *job) supplies(at int, r *inspect.Receive) string {
	m := &j.members[at]
	const found = "a message for a receive of it was sent"
	if r.Peer >= 0 && !r.Any && r.Mask == 0 {
		if j.supplied[exact{m.Rank, r.Peer, r.Comm, r.Tag}] {
			return found
		}
		return ""
	}
	if m.compared += len(j.incoming[at]) + len(m.Messages); m.compared > compareMost {
		return tooMany
	}
	for _, s := range j.incoming[at] {
		if matches(r.Key, s.Key) && comesFrom(r, s.src) {
			return found
		}
	}
	for _, msg := range m.Messages {
		if matches(r.Key, msg.Key) && comesFrom(r, msg.Peer) {
			return found
		}
	}
	return ""
}

// lies reports whether all of a rank's sends that are requested, and alike, lie at their
// destination, where no receive has matched them.
func (j *job) lies(src int, s *inspect.Send) bool {
	return j.requests[request{exact{s.Peer, src, s.Comm, s.Tag}, s.Bytes}] >= s.N
}

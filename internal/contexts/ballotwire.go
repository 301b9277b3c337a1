package contexts

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/progress"
)

// Kinds of what ranks say of ballots.
const (
	kindVote   = iota + 1
	kindAsk    // of the leader: vote
	kindDecide // of the leader; the decision is the last one of its vote
)

// What a rank says of a ballot is longer than a notice: it goes in several, of which all but the
// last have a 1 in their second byte. Its words, of 4 bytes, are:
//
//	the ID of the Comm, 2
//	kind; number; gaveUp and 2*offers; value, 2
//	last.number, Context, FailedBy, Differs, Full; Value, 2
//	the ranks in lost: how many, and which; those in last.Lost
//	with an offer: Free, Closing
type sayer struct{ words []byte }

func (s *sayer) put(words ...int) {
	for _, w := range words {
		s.words = binary.LittleEndian.AppendUint32(s.words, uint32(w))
	}
}
func (s *sayer) long(w uint64) { s.words = binary.LittleEndian.AppendUint64(s.words, w) }
func (s *sayer) list(ranks []int) {
	s.put(len(ranks))
	s.put(ranks...)
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// say tells a rank of the Comm what this one votes, asks, or has decided.
func (cs *Contexts) say(e progress.Callback, l *liveContext, rank int, kind int) {
	m := &l.voting.mine
	s := sayer{}
	s.long(l.comm.ID)
	s.put(kind, int(m.number), bit(m.gaveUp)+2*bit(m.ballot.Offers))
	s.long(uint64(m.ballot.Value))
	s.put(int(m.last.number), m.last.Context, m.last.FailedBy, m.last.Differs, bit(m.last.Full))
	s.long(uint64(m.last.Value))
	s.list(cs.lostOf(e, l))
	s.list(m.last.Lost)
	if m.ballot.Offers {
		for _, set := range []*Set{&m.ballot.Free, &m.ballot.Closing} {
			for _, w := range set {
				s.long(w)
			}
		}
	}
	for rest, part := s.words, []byte(nil); len(rest) != 0; {
		n := min(len(rest), e.MaxNotice()-4) &^ 3
		part, rest = rest[:n], rest[n:]
		b := append(notice(noticeBallot, min(l.comm.Context, Library)), part...)
		b[1] = byte(bit(len(rest) != 0))
		e.Notice(l.comm.Group.World(rank), b)
	}
}

var errBallot = errors.New("what it says of a ballot is no vote")

// listener reads what a sayer has written.
type listener struct {
	words []byte
	bad   bool
}

func (l *listener) next() uint32 {
	if len(l.words) < 4 {
		l.bad = true
		return 0
	}
	w := binary.LittleEndian.Uint32(l.words)
	l.words = l.words[4:]
	return w
}
func (l *listener) long() uint64 {
	low := uint64(l.next())
	return low | uint64(l.next())<<32
}
func (l *listener) list(size int) (ranks []int) {
	n := int(l.next())
	if n > size || n > len(l.words)/4 {
		l.bad = true
		return nil
	}
	for range n {
		rank := int(l.next())
		l.bad = l.bad || rank >= size
		ranks = append(ranks, rank)
	}
	return ranks
}

// parseBallot reads what a rank has said of a ballot of a Comm with that many ranks.
func (cs *Contexts) parseBallot(body []byte, size int) (kind int, v vote, err error) {
	l := listener{words: body}
	kind, v.number = int(l.next()), l.next()
	flags := l.next()
	v.gaveUp, v.ballot.Offers = flags&1 != 0, flags&2 != 0
	v.ballot.Value = int64(l.long())
	d := &v.last
	d.number = l.next()
	d.Context, d.FailedBy, d.Differs = int(int32(l.next())), int(int32(l.next())), int(int32(l.next()))
	d.Full = l.next() != 0
	d.Value = int64(l.long())
	v.lost, d.Lost = l.list(size), l.list(size)
	if v.ballot.Offers {
		for _, set := range []*Set{&v.ballot.Free, &v.ballot.Closing} {
			for i := range set {
				set[i] = l.long()
			}
		}
	}
	if l.bad || len(l.words) != 0 || kind < kindVote || kind > kindDecide || d.Context >= Library || d.FailedBy >= cs.size || d.Differs >= cs.size {
		return 0, v, errBallot
	}
	return kind, v, nil
}

// sayLen bounds what is said of a ballot in a World of size ranks, bytes.
func sayLen(size int) int { return 8 + 10*8 + 8*(size+1) + 2*len(Set{})*8 }

// part names what a rank says in several notices.
type part struct{ context, src int }

// ballotPart takes a part of what a rank says of a ballot.
func (cs *Contexts) ballotPart(e progress.Callback, context, src int, more byte, body []byte) error {
	name := part{context, src}
	whole := append(cs.parts[name], body...)
	if len(whole) > sayLen(cs.size) {
		return fmt.Errorf("it says %d bytes of a ballot", len(whole))
	}
	if more != 0 {
		cs.parts[name] = whole
		return nil
	}
	delete(cs.parts, name)
	if len(whole) < 8 {
		return errBallot
	}
	return cs.ballotSaid(e, context, src, whole)
}

// ballotSaid takes what a rank says of a ballot. That of a context which is free, or another
// Comm's, comes late. What comes early of a meeting is not kept: whoever leads it asks again.
func (cs *Contexts) ballotSaid(e progress.Callback, context, src int, whole []byte) error {
	if context == Library {
		context = Meeting(binary.LittleEndian.Uint64(whole))
	}
	l := cs.live[context]
	switch {
	case l == nil && context > Library:
		cs.elsewhere[src] = context
		return nil
	case l == nil:
		if cs.making(context) && len(whole) > 8 {
			cs.votes[earlyVote{context, src, whole[8]}] = whole
		}
		return nil
	case l.comm.ID != binary.LittleEndian.Uint64(whole):
		return nil
	}
	for rank := range l.comm.Group.Size() {
		if l.comm.Group.World(rank) == src {
			kind, v, err := cs.parseBallot(whole[8:], l.comm.Group.Size())
			if err == nil {
				cs.heard(e, l, rank, kind, v)
			}
			return err
		}
	}
	return fmt.Errorf("ballots of context %d, which is not one of rank %d", context, src)
}

// earlyVote names what a rank has said of a ballot of a Comm that is not opened here.
type earlyVote struct {
	context, src int
	kind         byte
}

// heedVotes takes what was said of ballots of a Comm before it was opened.
func (cs *Contexts) heedVotes(e progress.Callback, context int) {
	var early []earlyVote
	for name := range cs.votes {
		if name.context == context {
			early = append(early, name)
		}
	}
	slices.SortFunc(early, func(a, b earlyVote) int { return cmp.Or(a.src-b.src, int(a.kind)-int(b.kind)) })
	for _, name := range early {
		whole := cs.votes[name]
		delete(cs.votes, name)
		_ = cs.ballotSaid(e, context, name.src, whole) // a rank that is no member may have meant another Comm
	}
}

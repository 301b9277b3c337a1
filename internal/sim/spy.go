package sim

import (
	"math/rand/v2"

	"github.com/tagmatch/tagmatch/transport"
)

// spy stands between an engine and a transport. It counts what the engine's metrics do not show,
// and refuses requests as if there were no room.
type spy struct {
	transport.Transport
	id   int
	dice *refusals
	list *spyList
}

// refusals decides which requests are refused.
type refusals struct {
	w    *world
	rng  *rand.Rand
	most int // in a row; 0: none
	run  int
}

func (r *refusals) refuses() bool {
	if r.most == 0 {
		return false
	}
	if r.run == 0 && r.rng.IntN(3) == 0 {
		r.run = 1 + r.rng.IntN(r.most)
	}
	if r.run == 0 {
		return false
	}
	r.run--
	r.w.refused++
	return true
}

// opener opens a transport for the engine's sink.
type opener func(transport.Sink) (transport.Transport, error)

// watched opens a transport behind a spy.
func (w *world) watched(id int, open opener) opener {
	return func(sink transport.Sink) (transport.Transport, error) {
		s := &spySink{Sink: sink, w: w, id: id, matched: map[uint64]int{}, lost: map[int]bool{}}
		tr, err := open(s)
		if err != nil {
			return nil, err
		}
		q := &w.plan.Params
		rng := rand.New(rand.NewPCG(w.plan.Seed, uint64(id)))
		y := &spy{Transport: tr, id: id, dice: &refusals{w: w, rng: rng, most: q.Refuse}}
		if list := tr.TagList(); list != nil {
			y.list = &spyList{TagList: list, dice: &refusals{w: w, rng: rng, most: q.RefuseOps}}
			s.counts, s.count = true, q.TM.InitialCount
		}
		return y, nil
	}
}

func (s *spy) Caps() transport.Caps {
	c := s.Transport.Caps()
	if n := s.dice.w.plan.Params.MaxRead; n > 0 {
		c.MaxRead = uint64(n)
	}
	return c
}

func (s *spy) TagList() transport.TagList {
	if s.list == nil {
		return nil
	}
	return s.list
}

func (s *spy) SendEager(peer int, appCtx uint32, tag uint64, payload []byte) error {
	if s.refuses(peer) {
		return transport.ErrAgain
	}
	return s.Transport.SendEager(peer, appCtx, tag, payload)
}

func (s *spy) SendEagers(peer int, appCtx uint32, msgs []transport.Eager) int {
	for i := range msgs {
		if s.refuses(peer) {
			msgs = msgs[:i]
			break
		}
	}
	if len(msgs) > 1 {
		s.dice.w.cov[Chains]++
	}
	return s.Transport.SendEagers(peer, appCtx, msgs)
}

func (s *spy) SendRndv(peer int, h *transport.RndvHdr) error {
	if s.refuses(peer) {
		return transport.ErrAgain
	}
	return s.Transport.SendRndv(peer, h)
}

func (s *spy) SendFin(peer int, appCtx uint32) error {
	if s.refuses(peer) {
		return transport.ErrAgain
	}
	return s.Transport.SendFin(peer, appCtx)
}

func (s *spy) SendCtrl(peer int, msg []byte) error {
	if s.refuses(peer) {
		return transport.ErrAgain
	}
	return s.Transport.SendCtrl(peer, msg)
}

func (s *spy) Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error {
	if s.refuses(peer) {
		return transport.ErrAgain
	}
	if len(dst) == s.dice.w.plan.Params.MaxRead {
		s.dice.w.cov[Pieces]++
	}
	return s.Transport.Read(peer, dst, va, rkey, id)
}

func (s *spy) Abandon(peer int, id uint64) bool {
	s.dice.w.cov[Abandoned]++
	return s.Transport.Abandon(peer, id)
}

// spyList refuses some Adds and Syncs. No transport may refuse Del and ForceDel: for those, small
// queues of the device leave no room.
type spyList struct {
	transport.TagList
	dice *refusals
}

func (l *spyList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	if l.dice.refuses() {
		return transport.ErrAgain
	}
	return l.TagList.Add(id, tag, mask, buf, handled)
}

func (l *spyList) Sync(handled uint32) error {
	if l.dice.refuses() {
		return transport.ErrAgain
	}
	return l.TagList.Sync(handled)
}

type spySink struct {
	transport.Sink
	w      *world
	id     int
	counts bool   // the device has a list
	count  uint16 // unexpected messages, as counted by the device

	matched map[uint64]int // by id: source of matched receives that have not ended
	lost    map[int]bool
}

func (s *spySink) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	s.w.arrives(s.id, src, tag)
	s.matched[id] = src
	s.Sink.Matched(id, src, appCtx, tag)
}

func (s *spySink) Delivered(id, n uint64, err error) {
	s.ended(id, err)
	s.Sink.Delivered(id, n, err)
}

func (s *spySink) PeerLost(peer int, err error) {
	s.lost[peer] = true
	s.w.countLoss(s.id, peer, err)
	s.Sink.PeerLost(peer, err)
}

// ended checks that matched receives end before their sender's loss is reported.
func (s *spySink) ended(id uint64, err error) {
	src, ok := s.matched[id]
	delete(s.matched, id)
	switch {
	case !ok:
	case s.lost[src]:
		panic(fail("loss order", "rank %d: receive %#x ends after the loss of rank %d was told, which sent its message", s.id, id, src))
	case err == nil && src >= 0 && s.w.apart(s.id, src):
		s.w.cov[HeldLosses]++
	}
}

func (s *spySink) unexpected() {
	if !s.counts {
		return
	}
	s.w.cov[Unexpected]++
	if s.count++; s.count == 0 {
		s.w.cov[Wraps]++
	}
}

func (s *spySink) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	s.w.arrives(s.id, src, tag)
	s.unexpected()
	s.Sink.Eager(src, appCtx, tag, payload)
}

func (s *spySink) Rndv(src int, h *transport.RndvHdr) {
	s.w.arrives(s.id, src, h.Tag)
	s.unexpected()
	s.Sink.Rndv(src, h)
}

func (s *spySink) Incomplete(id uint64, h *transport.RndvHdr) {
	s.w.cov[Incomplete]++
	s.ended(id, nil)
	s.Sink.Incomplete(id, h)
}

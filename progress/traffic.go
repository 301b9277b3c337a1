package progress

import (
	"cmp"
	"slices"
	"time"
)

// moved is bytes of messages that were exchanged with one rank.
type moved struct{ eager, rndv uint64 }

// cameRndv counts a rendezvous message of so many bytes that was received.
func (p *peer) cameRndv(n uint64) {
	p.e.m.RndvReceived++
	p.cameBytes.rndv += n
}

// Traffic is the bytes of messages that were exchanged with one rank. Messages are whole, also
// where their receive was shorter; of a rendezvous they count when it has ended.
type Traffic struct {
	Rank                     int
	EagerSent, EagerReceived uint64
	RndvSent, RndvReceived   uint64
}

func (t *Traffic) add(u Traffic) {
	t.EagerSent += u.EagerSent
	t.EagerReceived += u.EagerReceived
	t.RndvSent += u.RndvSent
	t.RndvReceived += u.RndvReceived
}

// Traffic lists the ranks with which bytes were exchanged, in ascending order.
func (e *Engine) Traffic() (list []Traffic) {
	e.eachTraffic(func(t Traffic) {
		if t != (Traffic{Rank: t.Rank}) {
			list = append(list, t)
		}
	})
	slices.SortFunc(list, func(a, b Traffic) int { return cmp.Compare(a.Rank, b.Rank) })
	return list
}

// eachTraffic visits all peers, and takes the lock for some at a time.
func (e *Engine) eachTraffic(visit func(Traffic)) {
	from := 0
	piece(func() (more bool) {
		to := min(from+pieceMost, len(e.made))
		for _, p := range e.made[from:to] {
			visit(Traffic{p.rank, p.sentBytes.eager, p.cameBytes.eager, p.sentBytes.rndv, p.cameBytes.rndv})
		}
		from = to
		return from < len(e.made)
	}).each(&e.mu, nil)
}

// oldestWait is for how long a goroutine has waited, of those that wait at the time now; 0: none
// does.
func (e *Engine) oldestWait(now time.Time) (age time.Duration) {
	skip := 0
	piece(func() (more bool) {
		more = e.wait.Began(skip, pieceMost, func(began time.Time) { age = max(age, now.Sub(began)) })
		skip += pieceMost
		return more
	}).each(&e.mu, nil)
	return age
}

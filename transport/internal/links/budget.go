package links

import "github.com/tagmatch/tagmatch/verbs"

// budget is the send requests that may be outstanding to all peers together. A request counts until
// its completion was polled, or that of a later one of its queue pair: after an error it has one of
// its own, signalled or not (TMO 8.2), which must find room in the completion queue.
//
// So a peer that is sent nothing more holds what its newest requests count, which are not
// signalled. Idle peers never hold more than half of the total that way: while more is in use, each
// request is signalled. And those that hold most are confirmed then.
type budget struct {
	total uint32
	used  uint32 // the sum of peer.posted-peer.done, and behind; at most total
	mark  uint32 // Links.crowded is asked where used is not below: half of total, or all while more is in use
	// behind is the messages that reads have overtaken, which have ended: where the link has failed
	// since, their completions are still in the queue, behind that of the read.
	behind uint32
	every  uint32 // a posting to a peer that makes so many since the last signalled one is signalled
	usual  uint32 // every, unless the budget is short
}

// open sets the budget of all peers, and has every so many requests of one signalled.
func (b *budget) open(total, every int) {
	b.total, b.mark = uint32(total), uint32(total)/2
	b.every, b.usual = uint32(every), uint32(every)
}

// crowded has requests signalled, as half of the budget is in use or more when one is to be posted.
// It reports whether all of it is.
func (l *Links) crowded() (full bool) {
	b := &l.budget
	b.mark, b.every, l.todo = b.total, 1, true
	return b.used >= b.total
}

// returned takes back what n requests count, which have ended.
func (b *budget) returned(n uint32) {
	if b.used -= n; b.used < b.total/2 {
		b.mark, b.every = b.total/2, b.usual
	}
}

// drained takes back what reads have overtaken, as no completions are left.
func (b *budget) drained() {
	b.returned(b.behind)
	b.behind = 0
}

// unconfirmed returns how many requests of p count that no completion to come tells of.
func (p *peer) unconfirmed() uint32 {
	if int32(p.signalled-p.done) > 0 {
		return p.posted - p.signalled
	}
	return p.posted - p.done
}

// worth is how many requests are confirmed also while less than a quarter of the budget is left. As
// idle peers hold half of it at most, that takes an eighth of it at most.
const worth = 4

// confirmMost confirms the requests of the peers that hold most of the budget without need, dead
// ones included. A quarter is left to others, as a peer may take long to answer.
func (l *Links) confirmMost() {
	b, most := &l.budget, uint32(1)
	for _, p := range l.made {
		most = max(most, p.unconfirmed())
	}
	for _, p := range l.made {
		n := p.unconfirmed()
		if n >= (most+1)/2 && (b.used < b.total-b.total/4 || n >= worth && b.used < b.total) {
			l.confirm(p)
		}
	}
}

// confirm has a completion tell that all requests posted to p so far have ended: that of a
// signalled RDMA WRITE of no bytes behind them. If the queue is full one is to come, and confirm
// does nothing.
func (l *Links) confirm(p *peer) {
	if p.posted-p.done >= l.depth {
		return
	}
	l.write.RemoteAddr, l.write.RKey, l.write.SGList = p.cellAddr, p.cellRKey, nil
	_ = l.post(p, &l.write, kindSend, verbs.SendSignaled) // an error loses the peer, which Sink.PeerLost reports
}

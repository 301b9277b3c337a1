package soft

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// A system call that copies between two processes takes about 2 us whatever it copies, as much as
// the copy of some 30 KB. So READs and pushes that fit into a chunk together are made by one call.

// copyMany copies the oldest direct reads, where several fit into a chunk. It returns false if it
// has copied none: then copyOne makes the oldest, and finds what is wrong with it.
func (q *queuePair) copyMany() bool {
	mem, ok := q.link.Memory().(wire.RemotePieces)
	if !ok || q.mreads.len() < 2 {
		return false
	}
	ps := q.d.batch[:0]
	for left := wire.MaxChunk; len(ps) < min(q.mreads.len(), wire.MaxPieces); {
		i := *q.mreads.at(len(ps))
		w := q.work(i)
		n := w.upto - w.off
		if w.nsge != 1 || n > uint64(left) {
			break
		}
		dst, ok := q.target(q.list(i), w.off, n)
		if !ok {
			break
		}
		left -= len(dst)
		ps = append(ps, wire.Piece{Data: dst, Addr: w.addr + w.off, RKey: w.rkey})
	}
	defer func() { clear(ps) }()
	if len(ps) < 2 {
		return false
	}
	if invariant.Enabled {
		for k := range ps {
			q.d.writes(q.list(*q.mreads.at(k)), ps[k].Data)
		}
	}
	done := mem.ReadMany(ps)
	for range done {
		i := *q.mreads.front()
		q.mreads.pop()
		q.readEnded(&q.sq[i&q.mask], i)
	}
	return done > 0
}

// pushMany makes the pushes at the front of the responses, where several fit into a chunk. Those
// that it does not make are left to push.
func (q *queuePair) pushMany() {
	mem, ok := q.link.Memory().(wire.RemotePieces)
	if !ok {
		return
	}
	ps := q.d.batch[:0]
	for left := wire.MaxChunk; len(ps) < min(q.resp.len(), wire.MaxPieces); {
		r := q.resp.at(len(ps))
		if r.op != wire.OpPushResp || r.off != 0 || r.status != 0 || r.total > uint64(left) {
			break
		}
		src, ok := q.d.regions.Resolve(&q.pd.Domain, r.rkey, r.addr, r.total, verbs.AccessRemoteRead)
		if !ok || len(src) == 0 {
			break
		}
		left -= len(src)
		ps = append(ps, wire.Piece{Data: src, Addr: r.value, RKey: r.key})
	}
	if len(ps) >= 2 {
		for k := range mem.WriteMany(ps) {
			r := q.resp.at(k)
			r.off = r.total
		}
	}
	clear(ps)
}

package links

import (
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// chain is the work requests of SendEagers. Each names the next one, also while fewer are posted.
type chain struct {
	wrs  [transport.MaxEagers]verbs.SendWR
	sges [transport.MaxEagers][2]verbs.SGE // header and payload
	hdrs [transport.MaxEagers][verbs.TMHSize]byte
	most int // largest payload, bytes
}

func (c *chain) init(most int) {
	c.most = most
	for i := range c.wrs {
		c.sges[i][0].Data = c.hdrs[i][:]
		c.wrs[i] = verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGList: c.sges[i][:]}
		if i > 0 {
			c.wrs[i-1].Next = &c.wrs[i]
		}
	}
}

// fill prepares requests for the first messages that can go inline, and returns how many. The first
// has sequence number seq.
func (c *chain) fill(seq, appCtx uint32, msgs []transport.Eager) (n int) {
	for i := range msgs {
		m := &msgs[i]
		if len(m.Payload) > c.most {
			break
		}
		format.PutEager(c.hdrs[i][:], appCtx, m.Tag)
		c.sges[i][1].Data = m.Payload
		c.wrs[i].WRID = kindSend | uint64(seq+uint32(i))
		checkHeader(&c.wrs[i])
		n++
	}
	return n
}

// SendEagers sends several tagged messages by one posting. Only the last is ever signalled:
// where it would else be the budget.every-th that is not, or a later one.
func (l *Links) SendEagers(to int, appCtx uint32, msgs []transport.Eager) (sent int) {
	if uint(to) >= uint(len(l.peers)) {
		return 0
	}
	p := l.peers[to]
	if p.posted-p.done >= p.limit || l.budget.used >= l.budget.mark && l.crowded() {
		return 0
	}
	room := min(int(p.limit-(p.posted-p.done)), int(l.budget.total-l.budget.used), transport.MaxEagers)
	c := &l.chain
	n := c.fill(p.posted, appCtx, msgs[:min(len(msgs), room)])
	if n == 0 {
		return 0
	}
	last := &c.wrs[n-1]
	next := last.Next
	last.Next = nil
	end := p.posted + uint32(n)
	if end-p.signalled >= l.budget.every {
		last.Flags |= verbs.SendSignaled
	}
	bad, err := p.qp.PostSend(&c.wrs[0])
	if err != nil {
		end = uint32(bad.WRID)
		_ = l.refused(p, err) // SendEager of that message says it again
	} else if last.Flags&verbs.SendSignaled != 0 {
		p.signalled = end
	}
	last.Next, last.Flags = next, verbs.SendInline
	sent = int(end - p.posted)
	p.posted = end
	l.budget.used += uint32(sent)
	for i := range c.sges[:n] {
		c.sges[i][1].Data = nil // it is the caller's again
	}
	return sent
}

package contexts

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/progress"
)

// How all ranks of a Comm hear that one of them has revoked it. Who hears of it first tells others:
// those 1, 2, 4 and so on places before and behind it in the Comm, and for one that is lost the
// next one beyond. So each tells about 2 log2(size) others, and whoever is lost meanwhile, those
// that are left form a ring, of which each has told the next.
//
// A rank that has closed the Comm passes the word on too, until the context is free. So REVOKE can
// come late, where the context is that of another Comm: it names the Comm that it means. It can
// also come early. A rank that has a Comm knows that all others have taken its context, though not
// that they have opened it.

// maxReason bounds the reason in a REVOKE, bytes.
const maxReason = 200

// revoke is what a REVOKE says. Its words are the ID of the Comm, low half first, by, and the
// length of the reason, which follows, filled up with zeros to whole words.
type revoke struct {
	id     uint64
	by     int // rank in the World
	reason string
}

const revokeLen = 16 // without the reason

func (r *revoke) notice(context int) []byte {
	b := notice(noticeRevoke, context, int(uint32(r.id)), int(r.id>>32), r.by, len(r.reason))
	b = append(b, r.reason...)
	return append(b, make([]byte, -len(b)&3)...)
}

func (cs *Contexts) parseRevoke(body []byte) (r revoke, err error) {
	if len(body) < revokeLen {
		return r, fmt.Errorf("REVOKE of %d bytes", len(body))
	}
	r.id, r.by = binary.LittleEndian.Uint64(body), int(binary.LittleEndian.Uint32(body[8:]))
	n, text := int(binary.LittleEndian.Uint32(body[12:])), body[revokeLen:]
	if r.by >= cs.size || n > maxReason || n > len(text) || len(text)-n > 3 {
		return r, fmt.Errorf("REVOKE by rank %d, with a reason of %d bytes", r.by, n)
	}
	r.reason = valid(string(text[:n]))
	return r, nil
}

// valid is text that can stand in an error. It is not longer.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }

// revocation is a Comm that is revoked.
type revocation struct {
	revoke
	told map[int]struct{} // who know of it, by rank in the World
}

// Revoke has all ranks of a Comm that is open here revoke it. A second one does nothing.
func (cs *Contexts) Revoke(e progress.Callback, c *Comm, reason string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	l := cs.live[c.Context]
	if l == nil || l.comm != c || l.revoked != nil {
		return
	}
	reason = valid(reason)
	reason = valid(reason[:min(len(reason), maxReason, (e.MaxNotice()-4-revokeLen)&^3)])
	cs.revoke(e, l, revoke{c.ID, cs.rank, reason}, cs.rank)
}

// revoke revokes a Comm, which src was the first to tell. Others are told before the operations
// end: they hear of it before what that sends them.
func (cs *Contexts) revoke(e progress.Callback, l *liveContext, r revoke, src int) {
	context := l.comm.Context
	l.revoked = &revocation{r, map[int]struct{}{src: {}, r.by: {}, cs.rank: {}}}
	cs.spread(e, l)
	e.Bar(Base(context), l.comm.Revoked(r.by, r.reason))
	if b := cs.begun[context]; b != nil && b.revoked != nil {
		b.revoked()
	}
}

// spread tells those of a revoked Comm whom this rank is to tell, and has not told.
func (cs *Contexts) spread(e progress.Callback, l *liveContext) {
	n, self := l.comm.Group.Size(), 0
	for l.comm.Group.World(self) != cs.rank {
		self++
	}
	for step := 1; step < n; step *= 2 {
		cs.tell(e, l, self, step)
		cs.tell(e, l, self, -step)
	}
}

// tell tells the rank that many places from self, or the next one beyond that is not lost.
func (cs *Contexts) tell(e progress.Callback, l *liveContext, self, step int) {
	n, beyond := l.comm.Group.Size(), 1
	if step < 0 {
		beyond = -1
	}
	for place := step; place > -n && place < n; place += beyond {
		world := l.comm.Group.World((self + place + n) % n)
		if e.Lost(world) {
			continue
		}
		if _, ok := l.revoked.told[world]; !ok {
			l.revoked.told[world] = struct{}{}
			e.Notice(world, l.revoked.notice(l.comm.Context))
		}
		return
	}
}

// revokedBy takes a REVOKE. That of a context which is free, or another Comm's, comes late.
func (cs *Contexts) revokedBy(e progress.Callback, context, src int, body []byte) error {
	r, err := cs.parseRevoke(body)
	if err != nil {
		return err
	}
	l := cs.live[context]
	switch {
	case l == nil && !cs.making(context):
	case l == nil:
		if cs.early[context] == nil {
			cs.early[context] = map[int]revoke{}
		}
		cs.early[context][src] = r
	case l.comm.ID != r.id:
	case !l.comm.Group.Contains(src):
		return fmt.Errorf("REVOKE of context %d, which is not one of rank %d", context, src)
	case l.revoked == nil:
		cs.revoke(e, l, r, src)
	}
	return nil
}

// heedEarly revokes a Comm that is just opened where others have.
func (cs *Contexts) heedEarly(e progress.Callback, l *liveContext) {
	early := cs.early[l.comm.Context]
	delete(cs.early, l.comm.Context)
	for _, src := range slices.Sorted(maps.Keys(early)) {
		if r := early[src]; r.id == l.comm.ID && l.comm.Group.Contains(src) && l.revoked == nil {
			cs.revoke(e, l, r, src)
		}
	}
}

package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/ranks"
)

// cycleMost is how many ranks of a cycle are told one by one.
const cycleMost = 6

// cycle explains a knot by ranks in it that wait for each other in a circle.
func (d *diagnosis) cycle(at []int) {
	circle := d.circle(at)
	v := Verdict{Class: Cycle, Where: d.placeOf(circle[0])}
	if sends, limit := d.allSend(circle); sends {
		v.Class, v.Do = SmallCycle, "Use Sendrecv, or Isend and a receive before Wait."
		if limit > 0 {
			v.Class = SendCycle
			v.Do = fmt.Sprintf("Each sends more than EagerLimit (%s) before it receives: use Sendrecv, or Isend.", bytesText(uint64(limit)))
		}
	} else {
		v.Do = "Let one of them send before it receives, or use Sendrecv, or Irecv."
	}
	v.What = capital(rankList(d.ranksOf(circle), "waits for itself", "wait for each other in a circle"))
	what := d.doing
	if d.onePlace(circle) {
		v.What += ", all" + suffix(v.Where)
		what = d.waitsFirst
	}
	var parts []string
	for n, i := range circle {
		if n == cycleMost && len(circle) > cycleMost+1 {
			parts = append(parts, fmt.Sprintf("and so on, %d more", len(circle)-n))
			break
		}
		does := what(i)
		if n > 0 && d.alike(circle[0], i) {
			does = d.likewise(i)
		}
		parts = append(parts, fmt.Sprintf("rank %d %s", d.members[i].Rank, does))
	}
	v.What += ": " + strings.Join(parts, "; ") + "."
	d.describe(&v, circle[0])
	d.add(v, circle, circle)
}

// onePlace reports whether all of these, several, wait for a message at the same place.
func (d *diagnosis) onePlace(circle []int) bool {
	place := d.placeOf(circle[0])
	return len(circle) > 1 && place != "" && !slices.ContainsFunc(circle, func(i int) bool {
		return d.placeOf(i) != place || len(d.waits[i]) == 0 || waitingIn(&d.members[i]) != nil
	})
}

// alike reports whether what two members wait for first differs in the other rank alone.
func (d *diagnosis) alike(i, k int) bool {
	if len(d.waits[i]) == 0 || len(d.waits[k]) == 0 {
		return false
	}
	a, b := &d.waits[i][0], &d.waits[k][0]
	return d.placeOf(i) == d.placeOf(k) && (a.recv != nil && b.recv != nil && a.recv.Key == b.recv.Key && min(a.recv.Peer, b.recv.Peer) >= 0 ||
		a.send != nil && b.send != nil && a.send.Key == b.send.Key && a.send.Bytes == b.send.Bytes && a.send.Stage == b.send.Stage)
}

// likewise is what a member waits for as one before it does.
func (d *diagnosis) likewise(i int) string {
	if w := &d.waits[i][0]; w.send != nil {
		return fmt.Sprintf("for rank %d", w.send.Peer)
	}
	return fmt.Sprintf("for one of rank %d", d.waits[i][0].recv.Peer)
}

// waitsFirst is the first thing that a member waits for.
func (d *diagnosis) waitsFirst(i int) string { return d.waitText(&d.waits[i][0]) }

// describe takes Comm, tag, size and age of what a member waits for.
func (d *diagnosis) describe(v *Verdict, i int) {
	if len(d.waits[i]) == 0 {
		return
	}
	switch w := d.waits[i][0]; {
	case w.recv != nil:
		v.Comm, v.Bytes, v.Age = w.recv.Comm, w.recv.Bytes, w.recv.Age
		if !w.recv.Any {
			v.Tag = &w.recv.Tag
		}
	case w.send != nil:
		v.Comm, v.Tag, v.Bytes, v.Age = w.send.Comm, &w.send.Tag, w.send.Bytes, w.send.Age
	}
}

// allSend reports whether all of these wait for their sends alone, and the EagerLimit that they are
// above, or 0.
func (d *diagnosis) allSend(circle []int) (all bool, limit int) {
	for _, i := range circle {
		if slices.ContainsFunc(d.waits[i], func(w wait) bool { return w.send == nil }) {
			return false, 0
		}
		for _, w := range d.waits[i] {
			m := &d.members[i]
			if m.EagerLimit <= 0 || w.send.Bytes <= uint64(m.EagerLimit) {
				return true, 0 // it is synchronous, whatever its size
			}
			limit = cmp.Or(limit, m.EagerLimit)
		}
	}
	return true, limit
}

// circle is the members on a shortest way from one of a knot back to itself. Where a receive from
// any source is on it there may be no order to tell: then it is the whole knot.
func (d *diagnosis) circle(at []int) []int {
	g := d.graph
	start := at[0]
	from := map[int]int{}
	queue := []int{start}
	for len(queue) != 0 {
		v := queue[0]
		queue = queue[1:]
		for _, to := range g.edges[v] {
			if to == start {
				return d.wayTo(v, start, from, at)
			}
			if _, seen := from[to]; !seen && g.group[to] == g.group[start] {
				from[to] = v
				queue = append(queue, to)
			}
		}
	}
	return at
}

// wayTo is the members on the way that was found, from start on.
func (d *diagnosis) wayTo(v, start int, from map[int]int, at []int) []int {
	var way []int
	for ; v != start; v = from[v] {
		if v == d.graph.everybody() {
			return at
		}
		if v < len(d.members) {
			way = append(way, v)
		}
	}
	way = append(way, start)
	slices.Reverse(way)
	return way
}

// held is the sends to a member that wait for its memory, of members that wait for them.
type held struct {
	holder int
	by     []int
	send   *inspect.Send // the first
}

// heldUp tells who waits for memory of whom. It is the fault itself, or follows from that which the
// holder waits for; then it says where the memory is.
func (d *diagnosis) heldUp() {
	holders := map[int]*held{}
	var all []*held
	for i := range d.members {
		for k := range d.waits[i] {
			s := d.waits[i][k].send
			if d.lax.able[i] || s == nil || s.Stage != inspect.StageHeld {
				continue
			}
			at, ok := d.index[s.Peer]
			if !ok {
				continue
			}
			h := holders[at]
			if h == nil {
				h = &held{holder: at, send: s}
				holders[at], all = h, append(all, h)
			}
			if len(h.by) == 0 || h.by[len(h.by)-1] != i {
				h.by = append(h.by, i)
			}
		}
	}
	for n, h := range all {
		if n == mostOfKind {
			return
		}
		h.by = d.surest(h.by)
		d.tellHeld(h)
	}
}

func (d *diagnosis) tellHeld(h *held) {
	at := append([]int{h.holder}, h.by...)
	m, s := &d.members[h.holder], h.send
	first := d.members[h.by[0]].Rank
	v := Verdict{Class: HeldUp, Culprit: true, Comm: s.Comm, Tag: &s.Tag, Bytes: s.Bytes, Age: s.Age, Where: d.placeOf(h.holder)}
	v.What = fmt.Sprintf("Sends of %s to rank %d are held up", ranks.List(d.ranksOf(h.by)), m.Rank)
	if n := d.members[h.by[0]].peer(m.Rank).HeldUp; n > 1 {
		v.What += fmt.Sprintf(" (%d of rank %d)", n, first)
	}
	v.What += fmt.Sprintf(": rank %d has no memory for more messages that it has not received", m.Rank)
	if p := m.peer(first); p.Window > 0 {
		v.What += fmt.Sprintf(", and keeps %s of rank %d", aboutText(p.Charged), first)
	}
	v.What += fmt.Sprintf(". It %s.", d.doing(h.holder))
	v.Do = fmt.Sprintf("A receive of rank %d's messages (%s) on rank %d frees them; let it receive them first, or send fewer ahead.",
		first, tagText(d.oldest(m, first, s)), m.Rank)
	d.add(v, at, at)
}

// oldest is what a receive must ask for to free memory that a rank's messages take: that of the
// first message, or else of the send.
func (d *diagnosis) oldest(m *member, src int, s *inspect.Send) inspect.Key {
	for _, msg := range m.Messages {
		if msg.Peer == src {
			return msg.Key
		}
	}
	return s.Key
}

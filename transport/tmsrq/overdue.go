package tmsrq

import (
	"time"

	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// defaultGrace is how long a device has to complete the receives that messages of a rank have
// matched, once the link to that rank is lost. It need not complete them at all (TMO 9).
const defaultGrace = time.Second

// overdue is a rank whose link is lost, and of which matched receives have not ended.
type overdue struct {
	timer *time.Timer // wakes who waits for it; nil: the grace was over at once
	until time.Time   // the end of the grace
	reset bool        // its queue pair was reset
}

// unended ends the receives that the device does not. It is called in each poll while the link to a
// rank is lost and receives that its messages have matched have not ended; empty says that the
// completion queue is. After a second the queue pair is reset: the device owes nothing then, and
// when a further poll has found nothing of what it had completed before, the receives end. It
// returns how many.
func (t *Transport) unended(rank int, empty bool) (n int) {
	o := t.overdue[rank]
	switch {
	case o == nil:
		o = &overdue{until: time.Now().Add(t.grace)}
		if t.grace > 0 {
			o.timer = time.AfterFunc(t.grace, t.Wake)
		}
		t.overdue[rank] = o
	case !empty || time.Now().Before(o.until):
	case o.reset:
		delete(t.overdue, rank)
		n = t.list.abandon(rank)
	case t.list.quiet(rank):
		o.reset = true
		if err := t.ResetRecv(rank); err != nil {
			t.Break(err)
		}
		t.Wake() // for the further poll
	}
	return n
}

// stop ends the timer.
func (o *overdue) stop() {
	if o.timer != nil {
		o.timer.Stop()
	}
}

// quiet reports whether no peer is in the middle of a copy to a receive that a message of rank has
// matched.
func (l *tagList) quiet(rank int) bool {
	quiet := true
	for i := range l.entries {
		e := &l.entries[i]
		if e.state != entryMatched || e.src != rank {
			continue
		}
		// Each is asked: it takes back what the peer may write.
		if e.mr == nil {
			quiet = links.Quiet(l.bounce.Region()) && quiet
		} else {
			quiet = links.Quiet(e.mr) && quiet
		}
	}
	return quiet
}

// abandon ends the receives that messages of rank have matched: the device owes them no completion.
// It returns how many.
func (l *tagList) abandon(rank int) (n int) {
	for i := range l.entries {
		if e := &l.entries[i]; e.state == entryMatched && e.src == rank {
			e.bad = l.t.LinkErr(rank)
			l.end(uint32(i), e, &verbs.WC{})
			n++
		}
	}
	return n
}

package soft

import (
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// lateFlush is the flush of a queue pair that has failed, or was reset, while its peer is in the
// middle of a copy to the buffer of a READ: it waits for the peer's last byte.
type lateFlush struct {
	q      *queuePair
	link   wire.PushLink
	chunk  uint32         // the peer's
	keys   []uint32       // the regions to which the peer may write, and of the pushes behind
	passes int            // of the device that go by first, see nic.delays
	status verbs.WCStatus // see toErr
	first  uint32
}

// writes reports whether the peer may still write.
func (f *lateFlush) writes() bool { return f.link != nil && f.link.Writes(f.chunk) }

// endPushes ends all pushes. Pushes for other queue pairs of the link are refused then, and read.
// It returns nil if the peer does not write any more, so that their receives can end.
func (r *reader) endPushes() *lateFlush {
	f := &lateFlush{q: r.q}
	for k := range r.rdq.len() {
		if a := r.rdq.at(k); r.open(a) {
			f.keys = append(f.keys, r.q.list(a.index)[0].lkey)
			r.endPush(a.index)
		}
	}
	l, ok := r.q.link.(wire.PushLink)
	if !ok || r.rdq.len() == 0 {
		return nil
	}
	if f.link, f.chunk = l, l.RevokeAll(); len(f.keys) == 0 || !f.writes() {
		return nil
	}
	return f
}

// lateWake is how often a device that sleeps looks whether a peer still copies.
const lateWake = 10 * time.Millisecond

// wakeLate has a sleeping device look again.
func (d *Device) wakeLate() {
	if d.lateTimer == nil {
		d.lateTimer = time.AfterFunc(lateWake, d.notif.Wake)
	} else {
		d.lateTimer.Reset(lateWake)
	}
}

// flushLate flushes the queue pairs whose peers do not write any more.
func (d *Device) flushLate() {
	d.late = slices.DeleteFunc(d.late, func(f *lateFlush) bool {
		if f.q.late == f { // else it was reset
			if f.passes--; f.passes >= 0 || f.writes() {
				return false
			}
			f.q.late = nil
			f.q.flushAll(f.status, f.first)
		}
		return true
	})
}

// quietTime is how long a device waits, in all, in Destroy and in Modify to RESET, for peers that
// are in the middle of a copy to the buffer of a READ.
const quietTime = 2 * time.Second

// chunkTime is more than a peer that runs takes for a chunk: so long each is waited for.
const chunkTime = 20 * time.Millisecond

// await waits until the peer does not write any more; op is the call that does. An error says that
// it still may: its memory is kept for ever then.
func (f *lateFlush) await(op string) error {
	if f == nil || !f.writes() {
		return nil
	}
	d, start := f.q.d, wire.Monotonic()
	if d.quietEnd == 0 {
		d.quietEnd = start + int64(quietTime)
	}
	for ; f.writes(); runtime.Gosched() {
		if wire.Monotonic() > max(d.quietEnd, start+int64(chunkTime)) {
			for _, key := range f.keys {
				d.regions.Retain(key)
			}
			return fail(op, syscall.EBUSY, "the peer does not run, in the middle of a copy to the buffer of a READ, which it may finish later")
		}
	}
	return nil
}

package p2p

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/progress"
)

// Revoke ends the use of c at all its ranks, for one that knows that others wait in vain: after a
// loss that does not concern them, or an error of its own. Operations on c that wait end with
// ErrRevoked, whose text names the rank and the first 200 bytes of reason: sends, receives, probes,
// and calls of Dup, Split and Barrier. So do all later calls on c, but for Close, AckFailures and
// those that only ask. A receive whose bytes are on their way, and the calls of a Message that is
// here already, may succeed. Messages on c that a rank has not received are discarded, as by Close.
//
// Revoke is not collective, returns at once, and may be called from several ranks, and again. The
// word goes from rank to rank: each that hears of it tells up to 2 log2(Size) others. Whatever
// ranks are lost meanwhile, all that live hear of it if one does that lives, at the latest once
// they know of these losses. Ranks that have not made c yet hear of it when they have. A rank in
// ProgressManual hears of it, and passes it on, when it calls this package.
//
// A send that its receiver knows of ends when that has answered, as after Request.Cancel: a
// receiver that is stopped is waited for. World.Comm can be revoked too; raw calls, and other
// Comms, are not affected. Close c then as any other. The error is ErrClosed after Close, or that
// of a World that has ended.
func (c *Comm) Revoke(reason string) error {
	if c.closed.Load() {
		return wrapf("revoke: %w", errCommClosed)
	}
	if err := c.w.eng.Call(func(e progress.Callback) { c.w.contexts.Revoke(e, &c.comm, reason) }); err != nil {
		return wrapf("revoke: %w", err)
	}
	return nil
}

// revokedError is the error of calls on a Comm that is revoked, and of the operations that this
// ends.
type revokedError struct {
	by     int // rank in the World
	reason string
}

func (e *revokedError) Error() string {
	text := fmt.Sprintf("%s%v by rank %d of the World", prefix, ErrRevoked, e.by)
	if e.reason != "" {
		text += ": " + e.reason
	}
	return text
}

func (e *revokedError) Unwrap() error { return ErrRevoked }

// markRevoked is contexts.Comm.Revoked.
func (c *Comm) markRevoked(by int, reason string) error {
	err := &revokedError{by, reason}
	c.revoked.Store(err)
	c.open.Store(0)
	return err
}

// gone is why c has no ranks any more.
func (c *Comm) gone() error {
	if err := c.revoked.Load(); err != nil && !c.closed.Load() {
		return err
	}
	return errCommClosed
}

// openDerived opens a Comm that a call on c has made, or drops it, as the call has failed; open
// says which.
func (c *Comm) openDerived(open bool) error {
	return c.w.eng.Call(func(e progress.Callback) {
		if open {
			c.w.contexts.Open(e, &c.comm)
		} else {
			c.w.contexts.Drop(e, &c.comm)
		}
	})
}

// derivedID is the ID of a Comm with this context that the n-th call on c to make one has made: no
// other Comm with that context has it, and all ranks know it.
func (c *Comm) derivedID(context int, n uint64) uint64 {
	h := fnv.New64a()
	for _, word := range [...]uint64{c.comm.ID, n, contexts.Base(context)} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, word))
	}
	return h.Sum64()
}

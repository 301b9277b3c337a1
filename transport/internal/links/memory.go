package links

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// unregistered is what a call returns that could not register n bytes because of err: for want of
// memory ErrAgain, while something is registered that is given back as sends and reads end; with
// nothing of that kind waiting would not help.
func (l *Links) unregistered(n int, err error) error {
	if !errors.Is(err, syscall.ENOMEM) {
		return err
	}
	if l.regions.live > 0 || l.reads.registered() {
		l.warnShort(n, err)
		return transport.ErrAgain
	}
	regions, bytes := 0, 0
	if f := l.cfg.Registered; f != nil {
		var ending bool
		if regions, bytes, ending = f(); ending {
			l.warnShort(n, err)
			return transport.ErrAgain
		}
	}
	own := []verbs.MR{l.ring.mr, l.bounce.mr}
	for _, p := range l.made {
		own = append(own, p.cellMR)
	}
	for _, mr := range own {
		if mr != nil {
			regions, bytes = regions+1, bytes+mr.Len()
		}
	}
	return fmt.Errorf("%w for %d bytes, beside %d regions of %d bytes, which are buffers of this rank: %w",
		transport.ErrNoMemory, n, regions, bytes, err)
}

// warnShort logs, once, that messages wait for memory. Two ranks that send to each other may wait
// so for ever: what each has registered comes back when the other one has read it.
func (l *Links) warnShort(n int, err error) {
	if !l.warned {
		l.warned = true
		l.cfg.Logger.Warn("messages wait, as no more memory can be registered until others have ended", "rank", l.cfg.Rank,
			"device", l.cfg.Device.Name(), "bytes", n, "err", err)
	}
}

// registered reports whether the device has the destination of a read.
func (o *reads) registered() bool {
	for i := range o.slots {
		if o.slots[i].mr != nil {
			return true
		}
	}
	return false
}

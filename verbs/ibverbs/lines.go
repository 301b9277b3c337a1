package ibverbs

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs"
)

// lines are the lines of a device, which another one has, a software device between hosts. It is
// polled when its channel says so: a poll of the NIC alone is much cheaper.
type lines struct {
	dev   verbs.LineDevice
	ch    verbs.CompChannel
	cq    verbs.CQ
	d     *device
	ready atomic.Bool   // something has come: poll
	again chan struct{} // has an element where the owner has polled, so that waiting makes sense
	ended chan struct{} // closed when the goroutine that waits has ended
}

// linesCQE is the size of the lines' completion queue, which has no completions.
const linesCQE = 16

// openLines opens the device of the lines. An error leaves nothing open.
func openLines(d *device, cfg verbs.DriverConfig) (*lines, error) {
	dev, err := cfg.Lines(d.here.encode())
	if err != nil {
		return nil, err
	}
	l := &lines{dev: dev, d: d, again: make(chan struct{}, 1), ended: make(chan struct{})}
	if l.ch, err = dev.CreateCompChannel(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	if l.cq, err = dev.CreateCQ(verbs.CQInitAttr{CQE: linesCQE, Channel: l.ch}); err != nil {
		return nil, errors.Join(err, l.ch.Close(), dev.Close())
	}
	l.ready.Store(true)
	go l.wait()
	return l, nil
}

// wait has the owner poll when something has come, until the lines are closed. Until the owner has
// polled another Wait would end at once.
func (l *lines) wait() {
	defer close(l.ended)
	for range l.again {
		if l.ch.Wait() != nil {
			return
		}
		l.ready.Store(true)
		l.d.wake()
	}
}

// poll polls, and has the next reason told.
func (l *lines) poll() error {
	l.ready.Store(false)
	if err := l.cq.Arm(false); err != nil {
		return err
	}
	n, err := l.cq.Drain(l, linesCQE)
	if n > 0 {
		l.ready.Store(true)
	}
	select {
	case l.again <- struct{}{}:
	default:
	}
	return err
}

// Complete is for completions, of which lines have none.
func (*lines) Complete(*verbs.WC) bool { return false }

func (l *lines) close() error {
	err := errors.Join(l.cq.Destroy(), l.ch.Close())
	close(l.again)
	<-l.ended
	return errors.Join(err, l.dev.Close())
}

// Address is that of the lines, which carries the location of the port.
func (d *device) Address() []byte { return d.lines.dev.Address() }

func (d *device) Identity(addr []byte) []byte { return d.lines.dev.Identity(addr) }

func (d *device) Tell(to, msg []byte) error {
	err := d.lines.dev.Tell(to, msg)
	d.lines.ready.Store(true)
	return err
}

// PollTold ends the queue pairs that are connected to a device whose line has ended.
func (d *device) PollTold() (verbs.Told, bool) {
	t, ok := d.lines.dev.PollTold()
	if ok && t.Msg == nil {
		for q := range d.qps {
			if bytes.Equal(q.peer, t.From) && q.state != verbs.QPSErr {
				d.async.add(verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: q.Num(), Err: t.Err})
				if err := q.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState); err != nil {
					d.logger.Warn("a queue pair whose peer is gone", "error", err)
				}
			}
		}
	}
	return t, ok
}

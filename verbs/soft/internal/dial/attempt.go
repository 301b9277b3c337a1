package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

const (
	// handshakeTime limits how long somebody may take to prove that it is a peer, so that strangers
	// do not hold descriptors for long; the dial of a connection; and for how long a dial without
	// an answer keeps out the peer's own.
	handshakeTime = 5 * time.Second
	// minAttempt is enough to connect to a host that is alive.
	minAttempt = 500 * time.Millisecond
	// refusedTime limits how long dials that find no listener are repeated.
	refusedTime = time.Second
	// lastPause is the longest pause between two dials.
	lastPause = 200 * time.Millisecond
)

// runDial waits for a time and then dials until there is a connection, the dial is given up, or
// another attempt is pointless (again).
func (c *Connector) runDial(ctx context.Context, p *connPeer, d *connDial, after time.Duration) {
	defer d.cancel()
	rest(ctx, after)
	for pause := time.Millisecond; ; pause = min(2*pause, lastPause) {
		conn, err := c.attempt(ctx, p, d)
		if err == nil {
			c.finish(p, conn, p.addr)
			return
		}
		if isReject(err) {
			pause = max(pause, 10*time.Millisecond) // usually enough for the peer's own dial to arrive
		}
		if !c.again(p, d, err, pause) {
			return
		}
		rest(ctx, pause)
	}
}

// rest waits for a time, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// attempt dials once. A connection that it returns is confirmed and counted in connPeer.upgrading.
func (c *Connector) attempt(ctx context.Context, p *connPeer, d *connDial) (net.Conn, error) {
	conn, err := c.reach(ctx, p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	d.tries++
	l := newLimit(handshakeTime<<min(d.tries-1, 8), func() { c.unanswered(p, d, cancel) })
	claimed := false
	err = c.dialHandshake(conn, p.addr, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		// After stop neither a time limit nor a given-up dial ends the connection.
		claimed = p.dial == d && !c.closed && stop()
		if claimed {
			p.dial = nil
			p.upgrading++
		}
		return claimed
	})
	l.stop()
	if err == nil {
		return conn, nil
	}
	stop()
	_ = conn.Close()
	if claimed {
		c.unclaim(p, d)
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	if errors.Is(err, syscall.ETIMEDOUT) { // Config.Guard
		return nil, &unreached{err, c.cfg.Retry}
	}
	return nil, err
}

// reach makes one attempt to connect to the peer's host.
func (c *Connector) reach(ctx context.Context, p *connPeer) (net.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := newLimit(c.reachTime(p), func() { cancel(errNoAnswer) })
	conn, err := c.cfg.Dial(ctx, p.addr)
	looked := l.stop()
	if err == nil {
		if err = c.guard(conn); err != nil {
			_ = conn.Close()
		}
	}
	switch {
	case err == nil:
		return conn, nil
	case context.Cause(ctx) == errNoAnswer:
		return nil, &unreached{errNoAnswer, looked}
	case isReject(err) || c.short(err) || busy(err) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET):
		return nil, err
	}
	return nil, &unreached{err, looked}
}

// guard calls Config.Guard.
func (c *Connector) guard(conn net.Conn) error {
	if c.cfg.Guard == nil {
		return nil
	}
	return c.cfg.Guard(conn)
}

// reachTime limits one call of reach: to what is left of Config.Retry, but at least minAttempt.
func (c *Connector) reachTime(p *connPeer) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return min(handshakeTime, max(c.cfg.Retry-p.silent, minAttempt))
}

// unreached is the error of a dial that the peer's host has not answered for so long.
type unreached struct {
	error
	looked time.Duration
}

func (u *unreached) Unwrap() error { return u.error }

var (
	errNoAnswer = fmt.Errorf("its host does not answer: %w", syscall.ETIMEDOUT)
	errNoProof  = errors.New("the other end does not prove that it is a rank")
)

// busy reports whether a Unix socket's backlog is full: then its owner is there, and is slow.
func busy(err error) bool { return errors.Is(err, syscall.EAGAIN) }

// unanswered takes a dial whose handshake lasts for failed. The peer may be stopped, or slow, so
// the dial goes on; but its own dials are let in, as it may be that connections are possible only
// from there, and where it has several addresses the next one is tried.
func (c *Connector) unanswered(p *connPeer, d *connDial, cancel context.CancelCauseFunc) {
	c.mu.Lock()
	d.failed = true
	c.mu.Unlock()
	if c.several(p.addr) {
		cancel(errNoProof)
	}
}

// several reports whether the peer has several addresses, of which one may be somebody else's here.
func (c *Connector) several(a *wire.Address) bool { return c.cfg.Turns && len(a.TCP) > 1 }

// unclaim takes back the claim of a connection whose confirm could not be sent.
func (c *Connector) unclaim(p *connPeer, d *connDial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.upgrading--
	if p.incoming == 0 && p.upgrading == 0 && p.live == 0 && p.dial == nil {
		p.dial = d
	}
}

// again reports whether a failed dial is to be repeated, after a pause. If it is not, but the
// connection is still wanted, again delivers the failure.
func (c *Connector) again(p *connPeer, d *connDial, err error, pause time.Duration) bool {
	c.mu.Lock()
	if p.dial != d || c.closed {
		c.mu.Unlock()
		return false
	}
	var r *rejectError
	rejected := errors.As(err, &r)
	d.failed = d.failed || !rejected
	yielded := rejected && r.code == RejectYielded && c.cfg.Yields
	retry := !rejected || passing(r.code) || c.several(p.addr) && (r.code == rejectMagic || r.code == rejectDestination)
	if retry && c.patientLocked(p, err, pause) {
		c.mu.Unlock()
		return true
	}
	tried := p.silent + p.refused
	p.dial, p.wanted = nil, false
	if yielded && p.yielded == nil {
		p.yielded = err
	}
	if retry {
		err = fmt.Errorf("%w (tried for %v)", err, tried.Round(10*time.Millisecond))
	}
	if !yielded {
		p.failed = c.explained(err)
	}
	c.dropIdleLocked(p)
	c.mu.Unlock()
	c.deliver(Result{Peer: p.addr, Err: c.failure(p.addr, err), Yielded: yielded})
	return false
}

// patientLocked counts a failure that may pass, and the pause behind it, and reports whether to
// dial again. A peer is given up when its host has been silent for Retry, or its refusals last;
// while it shows that it lives neither counts. A device listens before it publishes its address: if
// nothing listens there, its process has most likely ended. What the kernel forbids it is unlikely
// to allow later.
func (c *Connector) patientLocked(p *connPeer, err error, pause time.Duration) bool {
	if u := (*unreached)(nil); errors.As(err, &u) {
		p.silent += u.looked + pause
		return p.silent < c.cfg.Retry
	}
	p.silent = 0
	r := &rejectError{}
	errors.As(err, &r)
	if r.code == rejectDuplicate || busy(err) || errors.Is(err, errNoProof) {
		return true
	}
	p.refused += pause
	if errors.Is(err, syscall.ECONNREFUSED) || r.code == rejectForbidden {
		return p.refused < min(c.cfg.Retry, cmp.Or(c.cfg.Refused, refusedTime))
	}
	return p.refused < c.cfg.Retry
}

// passing reports whether the reason for which a connection was refused may pass.
func passing(code rejectCode) bool {
	return code == rejectDuplicate || code == rejectShort || code == rejectForbidden
}

// Again is the error of an Upgrade that the next connection may not have.
type Again struct{ Err error }

func (a *Again) Error() string { return a.Err.Error() }
func (a *Again) Unwrap() error { return a.Err }

// worthAgain reports whether a peer is to be dialled again after the upgrade of a connection has
// failed: an end was short of something, the upgrade says so, or the connection has ended without a
// reason, which the next dial will show. Where another wire can be used, it is not worth waiting
// for what the kernel forbids.
func (c *Connector) worthAgain(err error) bool {
	var r *rejectError
	if errors.As(err, &r) {
		return passing(r.code) && !(c.cfg.Yields && r.code == rejectForbidden)
	}
	if c.short(err) {
		return true
	}
	if again := (*Again)(nil); errors.As(err, &again) {
		return true
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failure is the error that the owner gets for a peer that cannot be connected.
func (c *Connector) failure(peer *wire.Address, err error) error {
	return fmt.Errorf("%s: %w to %v: %w", c.cfg.Kind, verbs.ErrUnreachable, peer, c.explained(err))
}

// explained says what this end is short of, if that is why a connection has failed.
func (c *Connector) explained(err error) error {
	if isReject(err) {
		return err
	}
	code, why := lack(c.cfg.Self, err)
	if code != 0 {
		return ownFault{why}
	}
	return err
}

// ownFault is an error whose reason is at this end, not on the way.
type ownFault struct{ error }

func (f ownFault) Unwrap() error        { return f.error }
func (f ownFault) Is(target error) bool { return target == verbs.ErrRefused }

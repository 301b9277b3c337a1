package dial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// connPeer is what the Connector knows of one peer; under Connector.mu.
//
// Why two devices have one connection: of dial and incoming at most one is set. A dialler confirms
// only if its dial is still connPeer.dial, which it tests and clears under the lock, and a device
// that admits a connection clears its own dial first. So a device never confirms a connection after
// it has admitted another one. Of two connections that cross both could be adopted only if each
// device had confirmed its own before it admitted the other's. The device with the smaller ID does
// not: while it dials it admits nothing. (Once an attempt of it has failed it does, and gives its
// dial up: it may be that connections are possible only from the peer.)
//
// Why two devices agree on leaving a wire (to yield): an upgrade succeeds only if both devices have
// committed. A device yields only if the peer's end cannot succeed either: its own upgrade has
// failed before it committed; or the connection has ended without the message that the peer sends
// when it commits; or the peer has yielded, which is known since it refuses a dial for that, or
// has connected over the other wire. After a failure that may pass (worthAgain) a device does not
// yield at once: if it wants the connection it dials again, and yields when the time for that is
// over (patience); if not, it leaves that to the peer.
type connPeer struct {
	addr      *wire.Address
	wanted    bool          // Connect was called, and has no result yet
	since     time.Time     // of Connect, or when the peer's host has answered last
	pause     time.Duration // before the next dial, if connections fail after authentication
	dial      *connDial     // this device's dial under way that may still confirm; nil: none
	incoming  int           // admitted connections that the dialler has not confirmed yet
	upgrading int           // confirmed connections in finish
	live      int           // connections that Take returns or has returned, until Forget
	yielded   error         // why this wire has left the peer to another wire, for good; nil: it has not
}

// connDial is a dial with its retries.
type connDial struct {
	cancel context.CancelFunc
	failed bool // an attempt has ended without an answer of the peer
}

// peerLocked returns the entry of a peer, which it makes if there is none.
func (c *Connector) peerLocked(a *wire.Address) *connPeer {
	p := c.peers[a.ID]
	if p == nil {
		p = &connPeer{addr: a}
		c.peers[a.ID] = p
	}
	return p
}

// dropIdleLocked deletes the entry of a peer with nothing to remember.
func (c *Connector) dropIdleLocked(p *connPeer) {
	if p.yielded == nil && !p.wanted && p.dial == nil && p.incoming == 0 && p.upgrading == 0 && p.live == 0 {
		delete(c.peers, p.addr.ID)
	}
}

// dialIfNeededLocked starts a dial if a connection is wanted and none exists or is being made.
func (c *Connector) dialIfNeededLocked(p *connPeer) {
	if c.closed || !p.wanted || p.dial != nil || p.incoming > 0 || p.upgrading > 0 || p.live > 0 {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	d := &connDial{cancel: cancel}
	p.dial = d
	pause := p.pause
	c.wg.Go(func() { c.runDial(ctx, p, d, pause) })
}

// giveUpLocked gives up this device's dial, which then cannot confirm any more.
func (p *connPeer) giveUpLocked() {
	if p.dial != nil {
		p.dial.cancel()
		p.dial = nil
	}
}

// mayYieldLocked reports whether the failure of a confirmed connection makes this device yield: not
// while another connection to the peer may succeed, and not if its process has ended.
func (c *Connector) mayYieldLocked(p *connPeer, err error) bool {
	return c.cfg.Yields && p.yielded == nil && p.upgrading == 0 && p.live == 0 && !errors.Is(err, verbs.ErrPeerEnded)
}

// Yield leaves a peer to another wire, because of why, unless there is a connection: then it
// returns false.
func (c *Connector) Yield(a *wire.Address, why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerLocked(a)
	if p.live > 0 {
		return false
	}
	p.giveUpLocked()
	p.wanted, p.yielded = false, why
	return true
}

// lastPause is the longest pause between two dials.
const lastPause = 200 * time.Millisecond

// runDial waits for a time and then dials until there is a connection, the dial is given up, or
// another attempt is pointless (again).
func (c *Connector) runDial(ctx context.Context, p *connPeer, d *connDial, after time.Duration) {
	defer d.cancel()
	if after > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(after):
		}
	}
	for pause := time.Millisecond; ; pause = min(2*pause, lastPause) {
		conn, err := c.attempt(ctx, p, d)
		if err == nil {
			c.finish(p, conn, p.addr)
			return
		}
		if !c.again(p, d, err) {
			return
		}
		if isReject(err) {
			pause = max(pause, 10*time.Millisecond) // usually enough for the peer's own dial to arrive
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// attempt dials once. A connection that it returns is confirmed and counted in connPeer.upgrading.
func (c *Connector) attempt(ctx context.Context, p *connPeer, d *connDial) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.attemptTime(p))
	defer cancel()
	conn, err := c.cfg.Dial(ctx, p.addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	claimed := false
	err = c.dialHandshake(conn, p.addr, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		// After stop neither the time limit nor a given-up dial ends the connection.
		claimed = p.dial == d && !c.closed && stop()
		if claimed {
			p.dial = nil
			p.upgrading++
		}
		return claimed
	})
	if err == nil {
		return conn, nil
	}
	stop()
	_ = conn.Close()
	if claimed {
		c.unclaim(p, d)
	}
	if ctx.Err() == context.DeadlineExceeded { // the host has accepted: its process may only be stopped
		c.mu.Lock()
		p.since = time.Now()
		c.mu.Unlock()
	}
	return nil, err
}

// attemptTime is the time limit of one attempt: no more than is left of Config.Retry, but at least
// minAttempt.
func (c *Connector) attemptTime(p *connPeer) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.cfg.Retry - time.Since(p.since)
	return min(handshakeTime, max(left, minAttempt))
}

// minAttempt is enough to connect to a peer that is alive.
const minAttempt = 500 * time.Millisecond

// unclaim takes back the claim of a connection whose confirm could not be sent.
func (c *Connector) unclaim(p *connPeer, d *connDial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.upgrading--
	if p.incoming == 0 && p.upgrading == 0 && p.live == 0 && p.dial == nil {
		p.dial = d
	}
}

// again reports whether a failed dial is to be repeated. If it is not, but the connection is still
// wanted, again delivers the failure.
func (c *Connector) again(p *connPeer, d *connDial, err error) bool {
	c.mu.Lock()
	if p.dial != d || c.closed {
		c.mu.Unlock()
		return false
	}
	var r *rejectError
	rejected := errors.As(err, &r)
	d.failed = d.failed || !rejected
	yielded := rejected && r.code == RejectYielded && c.cfg.Yields
	retry := !rejected || passing(r.code) || len(p.addr.TCP) > 1 && (r.code == rejectMagic || r.code == rejectDestination)
	tried := time.Since(p.since)
	if retry && tried < c.patience(err) {
		c.mu.Unlock()
		return true
	}
	p.dial, p.wanted = nil, false
	if yielded && p.yielded == nil {
		p.yielded = err
	}
	c.dropIdleLocked(p)
	c.mu.Unlock()
	if retry {
		err = fmt.Errorf("%w (tried for %v)", err, tried.Round(10*time.Millisecond))
	}
	c.deliver(Result{Peer: p.addr, Err: c.failure(p.addr, err), Yielded: yielded})
	return false
}

// patience is how long dials that fail with err are repeated. A device listens before it publishes
// its address: if nothing listens there, its process has most likely ended. What the kernel forbids
// it is unlikely to allow later.
func (c *Connector) patience(err error) time.Duration {
	var r *rejectError
	if errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &r) && r.code == rejectForbidden {
		return min(c.cfg.Retry, cmp.Or(c.cfg.Refused, refusedTime))
	}
	return c.cfg.Retry
}

// passing reports whether the reason for which a connection was refused may pass.
func passing(code rejectCode) bool {
	return code == rejectDuplicate || code == rejectShort || code == rejectForbidden
}

// worthAgain reports whether a peer is to be dialled again after the upgrade of a connection has
// failed: an end was short of something, or the connection has ended without a reason, which the
// next dial will show. Where another wire can be used, it is not worth waiting for what the kernel
// forbids.
func (c *Connector) worthAgain(err error) bool {
	var r *rejectError
	if errors.As(err, &r) {
		return passing(r.code) && !(c.cfg.Yields && r.code == rejectForbidden)
	}
	if c.short(err) {
		return true
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failure is the error that the owner gets for a peer that cannot be connected.
func (c *Connector) failure(peer *wire.Address, err error) error {
	if !isReject(err) {
		_, err = lack(c.cfg.Self, err)
	}
	return fmt.Errorf("%s: %w to %v: %w", c.cfg.Kind, verbs.ErrUnreachable, peer, err)
}

// serve authenticates one incoming connection and finishes it.
func (c *Connector) serve(v *door.Visitor) error {
	conn := v.Conn
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	peer, accept, err := c.acceptHandshake(v)
	if peer == nil { // a stranger
		turnDown(conn, err)
		_ = conn.Close()
		return err
	}
	if err != nil {
		c.drop(conn, peer, err)
		return nil
	}
	p, rej := c.admit(peer)
	if rej != nil {
		c.drop(conn, peer, rej)
		return nil
	}
	err = writeMsg(conn, msgAccept, accept)
	if err == nil {
		_, err = readMsg(conn, msgConfirm)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if !c.adopt(p, err == nil && stop()) {
		c.drop(conn, peer, errors.Join(err, c.ctx.Err()))
		return nil
	}
	c.finish(p, conn, peer)
	return nil
}

// admit decides whether to take an authenticated incoming connection; see connPeer.
func (c *Connector) admit(peer *wire.Address) (*connPeer, *rejectError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, Refuse(RejectClosing, "rank %d is closing its device", c.cfg.Self.Rank)
	}
	p := c.peerLocked(peer)
	if p.yielded != nil {
		return nil, Refuse(RejectYielded, "%v", p.yielded)
	}
	first := bytes.Compare(c.cfg.Self.ID[:], peer.ID[:]) < 0
	if p.dial != nil && first && !p.dial.failed {
		return nil, Refuse(rejectDuplicate, "rank %d dials rank %d itself", c.cfg.Self.Rank, peer.Rank)
	}
	p.giveUpLocked()
	p.incoming++
	return p, nil
}

// adopt is called when an admitted connection was confirmed, or was not. It returns true if the
// connection is to be finished.
func (c *Connector) adopt(p *connPeer, confirmed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.incoming--
	if confirmed && !c.closed {
		p.upgrading++
		return true
	}
	c.dialIfNeededLocked(p)
	c.dropIdleLocked(p)
	return false
}

// drop refuses and closes a peer's connection, which is logged at debug level.
func (c *Connector) drop(conn net.Conn, peer *wire.Address, err error) {
	turnDown(conn, err)
	c.cfg.Log.Debug("connection dropped", "wire", c.cfg.Kind, "from", peer.String(), "err", err)
	_ = conn.Close()
}

// turnDown tells the other end why its connection is refused, if err says so.
func turnDown(conn net.Conn, err error) {
	var r *rejectError
	if errors.As(err, &r) && r.byUs {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		writeReject(conn, r)
	}
}

// warn logs that strangers were turned away. They may be why a job hangs: ranks with a wrong
// secret, or of another version.
func (c *Connector) warn(t door.Turned) {
	c.cfg.Log.Warn("connections turned away", "wire", c.cfg.Kind, "count", t.N, "last", t.From, "err", t.Err)
}

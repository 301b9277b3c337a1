package dial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
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
// Why two devices agree on leaving a wire (to yield): in an upgrade each device sends a last word
// when only the other can still fail, and succeeds only if it has that of the other. A device
// yields only if the peer's end cannot succeed either: its own upgrade has failed before its last
// word; or the connection has ended without that of the peer; or the peer has yielded, which is
// known since it refuses a dial for that, or has connected over the other wire. After a failure
// that may pass (worthAgain) a device does not yield at once: if it wants the connection it dials
// again, and yields when its patience is over; if not, it leaves that to the peer.
type connPeer struct {
	addr      *wire.Address
	wanted    bool          // Connect was called, and has no result yet
	silent    time.Duration // of Config.Retry: dials that the peer's host has not answered since it last did
	refused   time.Duration // of patience: the pauses behind dials that were answered in vain
	pause     time.Duration // before the next dial, if connections fail after authentication
	dial      *connDial     // this device's dial under way that may still confirm; nil: none
	incoming  int           // admitted connections that the dialler has not confirmed yet
	upgrading int           // confirmed connections in finish
	live      int           // connections that Take returns or has returned, until Forget
	yielded   error         // why this wire has left the peer to another wire, for good; nil: it has not
	failed    error         // why the last Connect has failed; nil: it has not, or Expect was called since
}

// connDial is a dial with its retries.
type connDial struct {
	cancel context.CancelFunc
	tries  int  // attempts so far; of runDial
	failed bool // an attempt has had no answer of the peer: see handshakeTime; under Connector.mu
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
	if p.yielded == nil && p.failed == nil && !p.wanted && p.dial == nil && p.incoming == 0 && p.upgrading == 0 && p.live == 0 {
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

// serve authenticates one incoming connection and finishes it.
func (c *Connector) serve(v *door.Visitor) error {
	conn := v.Conn
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l := newLimit(handshakeTime, func() { cancel(errNoProof) })
	peer, accept, err := c.acceptHandshake(v)
	l.stop()
	if peer == nil { // a stranger
		turnDown(conn, err)
		_ = conn.Close()
		if err == io.EOF { // not a word: a peer that has given its dial up, which counts as nobody
			return nil
		}
		return err
	}
	if err != nil {
		c.drop(conn, peer, cmp.Or(context.Cause(ctx), err))
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
	if !c.adopt(p, err == nil && stop()) {
		c.drop(conn, peer, errors.Join(err, context.Cause(ctx)))
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
	if p.failed != nil {
		return nil, c.givenUp(peer, p.failed)
	}
	first := bytes.Compare(c.cfg.Self.ID[:], peer.ID[:]) < 0
	if p.dial != nil && first && !p.dial.failed {
		return nil, Refuse(rejectDuplicate, "rank %d dials rank %d itself", c.cfg.Self.Rank, peer.Rank)
	}
	p.giveUpLocked()
	p.incoming++
	return p, nil
}

// givenUp refuses a peer that this device could not connect to. The peer, which tries for longer,
// or in whose time the reason has passed, would else learn only that its connection leads nowhere.
func (c *Connector) givenUp(peer *wire.Address, why error) *rejectError {
	code := rejectGivenUp
	switch {
	case errors.Is(why, verbs.ErrProtocol):
		code = rejectViolated
	case !errors.Is(why, verbs.ErrRefused):
		code = rejectUnreached
	}
	return Refuse(code, "rank %d has given up rank %d: %v", c.cfg.Self.Rank, peer.Rank, why)
}

// Expect lets a peer connect again after this device could not connect to it: the owner has a new
// use for a connection.
func (c *Connector) Expect(id wire.DeviceID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[id]; p != nil {
		p.failed = nil
		c.dropIdleLocked(p)
	}
}

// adopt takes in an admitted connection that was confirmed, and gives up one that was not. It
// returns true if the connection is to be finished.
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

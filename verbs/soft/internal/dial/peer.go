package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// connPeer is what the connector knows of one peer; under Connector.mu.
//
// Of dial and incoming at most one is set. Claim, the dialler's right to confirm, is taken under
// the lock and only while its dial is still the peer's current one. So a device never confirms a
// connection after it let another one in, and never lets one in without first taking away its own
// dial's right to confirm. Two connections that cross can then both be adopted only if each device
// confirmed the one it dialled before it let the other in. For the smaller id that is impossible:
// while it dials it lets nothing in. (It does so, giving its dial up, once an attempt has failed:
// it may be that only the peer can reach us.)
//
// Where another wire can take over, both ends must yield to it or none. An upgrade ends well only
// where both devices have committed. A device yields only if the peer cannot be connected: its own
// upgrade failed before it committed; or the connection ended without the peer's word, which the
// peer sends when it commits; or the peer has yielded, since it refuses a dial for that, or has
// come by the other wire. Its own end being closed, the peer's upgrade fails too. A device whose
// upgrade failed for what may pass (worthAgain) does not yield yet: if it wants the connection it
// dials again, and yields when its patience ends; if it does not, it leaves that to the peer.
type connPeer struct {
	addr      *wire.Address
	wanted    bool          // connect asked, and has had no result
	since     time.Time     // when it was wanted, or its host last let us connect
	pause     time.Duration // before the next dial, where connections fail after they were made
	dial      *connDial     // our dial, if one is under way
	incoming  int           // connections let in that wait for the dialler's confirm
	upgrading int           // confirmed, and in upgrade
	live      int           // delivered, and not forgotten
	yielded   error         // not nil: why this wire leaves the peer to another one, for good
}

// connDial is one dial with its retries.
type connDial struct {
	cancel context.CancelFunc
	failed bool // an attempt has failed to reach the peer
}

func (c *Connector) peerLocked(a *wire.Address) *connPeer {
	p := c.peers[a.ID]
	if p == nil {
		p = &connPeer{addr: a}
		c.peers[a.ID] = p
	}
	return p
}

// dropIdleLocked keeps the table to peers that have or want a connection.
func (c *Connector) dropIdleLocked(p *connPeer) {
	if p.yielded == nil && !p.wanted && p.dial == nil && p.incoming == 0 && p.upgrading == 0 && p.live == 0 {
		delete(c.peers, p.addr.ID)
	}
}

// dialIfNeededLocked starts a dial when one is wanted and nothing else is under way.
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

// giveUpLocked takes our dial's right to confirm.
func (p *connPeer) giveUpLocked() {
	if p.dial != nil {
		p.dial.cancel()
		p.dial = nil
	}
}

// mayYieldLocked decides whether a connection that failed after its confirm is the last one: not
// while another one may come up.
func (c *Connector) mayYieldLocked(p *connPeer, err error) bool {
	return c.cfg.Yields && p.yielded == nil && p.upgrading == 0 && p.live == 0 && !errors.Is(err, verbs.ErrPeerEnded)
}

// Yield leaves a peer to another wire, because of why. It does nothing and returns false while
// there is a connection.
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

// lastPause is the longest between two dials.
const lastPause = 200 * time.Millisecond

// runDial dials, after a time, until there is a connection, the dial was given up, or it is
// hopeless.
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
			c.finish(p, conn, p.addr, true)
			return
		}
		if !c.again(p, d, err) {
			return
		}
		if isReject(err) {
			pause = max(pause, 10*time.Millisecond) // the peer's own dial comes within that, as a rule
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// attempt dials once. With success the connection is confirmed and counted as upgrading.
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
		// From here on nothing may end the connection but a failure of its own.
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
	if ctx.Err() == context.DeadlineExceeded { // its kernel has answered: the process is stopped, perhaps, and not lost
		c.mu.Lock()
		p.since = time.Now()
		c.mu.Unlock()
	}
	return nil, err
}

// attemptTime bounds one attempt, and the last one by the time that is left.
func (c *Connector) attemptTime(p *connPeer) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.cfg.Limits.Retry - time.Since(p.since)
	return min(handshakeTime, max(left, minAttempt))
}

// minAttempt is enough for an attempt at a peer that is there.
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

// again decides whether a failed dial is repeated; if not and it is still wanted the owner is told.
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

// patience is how long dials that end with err are repeated. A device listens before anybody learns
// of its address: where nobody does, its process has most likely ended. What the kernel does not
// allow a process now it hardly allows later.
func (c *Connector) patience(err error) time.Duration {
	var r *rejectError
	if errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &r) && r.code == rejectForbidden {
		return min(c.cfg.Limits.Retry, refusedTime)
	}
	return c.cfg.Limits.Retry
}

// passing tells whether what a connection was refused for may pass.
func passing(code rejectCode) bool {
	return code == rejectDuplicate || code == rejectShort || code == rejectForbidden
}

// worthAgain tells whether a connection that failed after it was made is to be dialled again: one
// end is short of something, or has gone for reasons that a dial will show. What the kernel refuses
// is worth no time where another wire can take over.
func (c *Connector) worthAgain(err error) bool {
	var r *rejectError
	if errors.As(err, &r) {
		return passing(r.code) && !(c.cfg.Yields && r.code == rejectForbidden)
	}
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (c *Connector) failure(peer *wire.Address, err error) error {
	if !isReject(err) {
		_, err = lack(c.cfg.Self, err)
	}
	return fmt.Errorf("%s: %w to %v: %w", c.cfg.Kind, verbs.ErrUnreachable, peer, err)
}

// acceptLoop takes connections. It takes no more than slots has room for strangers: the others wait
// in the kernel's queue, where they cost nothing.
func (c *Connector) acceptLoop(spare *reserve) {
	defer spare.empty()
	for {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		var conn net.Conn
		err := spare.fill()
		if !c.short(err) {
			conn, err = c.cfg.Listener.Accept()
		}
		if c.short(err) {
			conn, err = c.acceptShort(spare, err)
		}
		if err == nil {
			c.wg.Go(func() { c.serve(conn) })
			continue
		}
		<-c.slots
		if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		select { // most likely out of descriptors: what others free helps us
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
		}
	}
}

// serve handles one incoming connection.
func (c *Connector) serve(conn net.Conn) {
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	peer, accept, err := c.acceptHandshake(conn)
	<-c.slots // it has authenticated, or is done
	if err != nil {
		c.drop(conn, peer, err)
		return
	}
	p, rej := c.letIn(peer)
	if rej != nil {
		c.drop(conn, peer, rej)
		return
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
		return
	}
	c.finish(p, conn, peer, false)
}

// letIn decides about an authenticated incoming connection; see connPeer.
func (c *Connector) letIn(peer *wire.Address) (*connPeer, *rejectError) {
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

// adopt ends the wait for a connection's confirm.
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

// drop refuses an incoming connection. One that failed for reasons of its own disturbs nobody: it
// is a debug message, except for a wrong secret or version, which the user of a job that hangs
// wants to see.
func (c *Connector) drop(conn net.Conn, peer *wire.Address, err error) {
	level := c.cfg.Log.Debug
	var r *rejectError
	if errors.As(err, &r) && r.byUs {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		writeReject(conn, r)
		if r.code == rejectSecret || r.code == rejectVersion {
			level = c.cfg.Log.Warn
		}
	}
	from := conn.RemoteAddr().String()
	if peer != nil {
		from = peer.String()
	}
	level("connection dropped", "wire", c.cfg.Kind, "from", from, "err", err)
	_ = conn.Close()
}

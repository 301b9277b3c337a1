package soft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// connPeer is what the connector knows of one peer; under connector.mu.
//
// Of dial and incoming at most one is set. Claim, the dialler's right to confirm, is taken under the lock and only while
// its dial is still the peer's current one. So a device never confirms a connection after it let another one in, and
// never lets one in without first taking away its own dial's right to confirm. Two connections that cross can then both be
// adopted only if each device confirmed the one it dialled before it let the other in. For the smaller id that is
// impossible: while it dials it lets nothing in. (It does so, giving its dial up, once an attempt has failed: it may be
// that only the peer can reach us.)
type connPeer struct {
	addr      *address
	wanted    bool      // connect asked, and has had no result
	since     time.Time // when it was wanted
	dial      *connDial // our dial, if one is under way
	incoming  int       // connections let in that wait for the dialler's confirm
	upgrading int       // confirmed, and in upgrade
	live      int       // delivered, and not forgotten
}

// connDial is one dial with its retries.
type connDial struct {
	cancel context.CancelFunc
	failed bool // an attempt has failed to reach the peer
}

func (c *connector) peerLocked(a *address) *connPeer {
	p := c.peers[a.id]
	if p == nil {
		p = &connPeer{addr: a}
		c.peers[a.id] = p
	}
	return p
}

// dropIdleLocked keeps the table to peers that have or want a connection.
func (c *connector) dropIdleLocked(p *connPeer) {
	if !p.wanted && p.dial == nil && p.incoming == 0 && p.upgrading == 0 && p.live == 0 {
		delete(c.peers, p.addr.id)
	}
}

// dialIfNeededLocked starts a dial when one is wanted and nothing else is under way.
func (c *connector) dialIfNeededLocked(p *connPeer) {
	if c.closed || !p.wanted || p.dial != nil || p.incoming > 0 || p.upgrading > 0 || p.live > 0 {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	d := &connDial{cancel: cancel}
	p.dial = d
	c.wg.Go(func() { c.runDial(ctx, p, d) })
}

// giveUpLocked takes our dial's right to confirm.
func (p *connPeer) giveUpLocked() {
	if p.dial != nil {
		p.dial.cancel()
		p.dial = nil
	}
}

// runDial dials until there is a connection, the dial was given up, or it is hopeless.
func (c *connector) runDial(ctx context.Context, p *connPeer, d *connDial) {
	defer d.cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
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
func (c *connector) attempt(ctx context.Context, p *connPeer, d *connDial) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := c.cfg.dial(ctx, p.addr)
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
	return nil, err
}

// unclaim takes back the claim of a connection whose confirm could not be sent.
func (c *connector) unclaim(p *connPeer, d *connDial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.upgrading--
	if p.incoming == 0 && p.upgrading == 0 && p.live == 0 && p.dial == nil {
		p.dial = d
	}
}

// again decides whether a failed dial is repeated; if not and it is still wanted the owner is told.
func (c *connector) again(p *connPeer, d *connDial, err error) bool {
	c.mu.Lock()
	if p.dial != d || c.closed {
		c.mu.Unlock()
		return false
	}
	var r *rejectError
	rejected := errors.As(err, &r)
	d.failed = d.failed || !rejected
	retry := !rejected || r.code == rejectDuplicate || len(p.addr.tcp) > 1 && (r.code == rejectMagic || r.code == rejectDestination)
	tried := time.Since(p.since)
	if retry && tried < c.patience(err) {
		c.mu.Unlock()
		return true
	}
	p.dial, p.wanted = nil, false
	c.dropIdleLocked(p)
	c.mu.Unlock()
	if retry {
		err = fmt.Errorf("%w (tried for %v)", err, tried.Round(10*time.Millisecond))
	}
	c.deliver(connResult{peer: p.addr, err: c.failure(p.addr, err)})
	return false
}

// patience is how long dials that end with err are repeated. A device listens before anybody learns of its address: where
// nobody does, its process has most likely ended.
func (c *connector) patience(err error) time.Duration {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return min(c.cfg.limits.retry, refusedTime)
	}
	return c.cfg.limits.retry
}

func (c *connector) failure(peer *address, err error) error {
	return fmt.Errorf("%s: cannot connect to %v: %w", c.cfg.kind, peer, err)
}

// acceptLoop takes connections. It takes no more than slots has room for strangers: the others wait in the kernel's
// queue, where they cost nothing.
func (c *connector) acceptLoop() {
	for {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		conn, err := c.cfg.listener.Accept()
		if err == nil {
			c.wg.Go(func() { c.serve(conn) })
			continue
		}
		<-c.slots
		if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		c.cfg.log.Warn("accept failed", "wire", c.cfg.kind, "err", err)
		select { // most likely out of descriptors: what others free helps us
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
		}
	}
}

// serve handles one incoming connection.
func (c *connector) serve(conn net.Conn) {
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
func (c *connector) letIn(peer *address) (*connPeer, *rejectError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, refuse(rejectClosing, "rank %d is closing its device", c.cfg.self.rank)
	}
	p := c.peerLocked(peer)
	first := bytes.Compare(c.cfg.self.id[:], peer.id[:]) < 0
	if p.dial != nil && first && !p.dial.failed {
		return nil, refuse(rejectDuplicate, "rank %d dials rank %d itself", c.cfg.self.rank, peer.rank)
	}
	p.giveUpLocked()
	p.incoming++
	return p, nil
}

// adopt ends the wait for a connection's confirm.
func (c *connector) adopt(p *connPeer, confirmed bool) bool {
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

// drop refuses an incoming connection. One that failed for reasons of its own disturbs nobody: it is a debug message,
// except for a wrong secret or version, which the user of a job that hangs wants to see.
func (c *connector) drop(conn net.Conn, peer *address, err error) {
	level := c.cfg.log.Debug
	var r *rejectError
	if errors.As(err, &r) && r.byUs {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		writeReject(conn, r)
		if r.code == rejectSecret || r.code == rejectVersion {
			level = c.cfg.log.Warn
		}
	}
	from := conn.RemoteAddr().String()
	if peer != nil {
		from = peer.String()
	}
	level("connection dropped", "wire", c.cfg.kind, "from", from, "err", err)
	_ = conn.Close()
}

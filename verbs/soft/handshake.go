package soft

import (
	"crypto/rand"
	"errors"
	"net"
	"time"
)

// handshakeTime bounds the whole handshake, so that a silent stranger holds nothing for long.
const handshakeTime = 5 * time.Second

// refusedTime bounds how long a dial that finds no listener is repeated.
const refusedTime = time.Second

// dialHandshake runs the dialler's side up to the acceptor's accept. claim then decides whether the
// connection is still wanted; if so the acceptor is told with a confirm.
func (c *connector) dialHandshake(conn net.Conn, peer *address, claim func() bool) error {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	h := &hello{kind: c.cfg.kind, src: c.cfg.self.id, dst: peer.id, srcRank: c.cfg.self.rank, dstRank: peer.rank,
		addr: c.cfg.self.encode()}
	_, _ = rand.Read(h.nonce[:])
	raw := h.encode()
	if _, err := conn.Write(raw); err != nil {
		// The other side may have refused before it read everything.
		if _, rerr := readMsg(conn, msgChallenge); isReject(rerr) {
			return rerr
		}
		return err
	}
	challenge, err := readMsg(conn, msgChallenge)
	if err != nil {
		if errors.Is(err, errOutOfTurn) {
			return refuse(rejectMagic, "something else than tagmatch answers there: %v", err)
		}
		return err
	}
	if err := writeMsg(conn, msgProof, proof(c.cfg.secret, labelDialler, raw, challenge)); err != nil {
		return err
	}
	mac, err := readMsg(conn, msgAccept)
	if err != nil {
		return err
	}
	if !proven(c.cfg.secret, labelAcceptor, raw, challenge, mac) {
		e := refuse(rejectSecret, "the acceptor does not have the secret of this job")
		writeReject(conn, e)
		return e
	}
	if !claim() {
		return errSuperseded
	}
	if err := writeMsg(conn, msgConfirm, nil); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// acceptHandshake runs the acceptor's side up to the dialler's proof and returns who dialled, and
// the message that accepts.
func (c *connector) acceptHandshake(conn net.Conn) (peer *address, accept []byte, err error) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	h, raw, err := readHello(conn)
	if err != nil {
		return nil, nil, err
	}
	if peer, err = c.checkHello(h); err != nil {
		return peer, nil, err
	}
	var challenge [nonceSize]byte
	_, _ = rand.Read(challenge[:])
	if err := writeMsg(conn, msgChallenge, challenge[:]); err != nil {
		return peer, nil, err
	}
	mac, err := readMsg(conn, msgProof)
	if err != nil {
		return peer, nil, err
	}
	if !proven(c.cfg.secret, labelDialler, raw, challenge[:], mac) {
		return peer, nil, refuse(rejectSecret, "rank %d does not have the secret of rank %d's job", h.srcRank, c.cfg.self.rank)
	}
	return peer, proof(c.cfg.secret, labelAcceptor, raw, challenge[:]), nil
}

// checkHello checks whom the dialler wants and who it says it is.
func (c *connector) checkHello(h *hello) (*address, error) {
	self := c.cfg.self
	switch {
	case h.kind != c.cfg.kind:
		return nil, refuse(rejectKind, "a %q connection came to a %q listener", h.kind, c.cfg.kind)
	case h.dst != self.id || h.dstRank != self.rank:
		return nil, refuse(rejectDestination, "device %x of rank %d is not here: this is device %x of rank %d",
			h.dst[:4], h.dstRank, self.id[:4], self.rank)
	case h.src == self.id:
		return nil, refuse(rejectDestination, "a device does not connect to itself")
	}
	peer, err := decodeAddress(h.addr)
	if err != nil {
		return nil, refuse(rejectHello, "hello of rank %d: %v", h.srcRank, err)
	}
	if peer.id != h.src || peer.rank != h.srcRank {
		return nil, refuse(rejectHello, "hello of rank %d carries the address of another device", h.srcRank)
	}
	return peer, nil
}

func isReject(err error) bool {
	var r *rejectError
	return errors.As(err, &r)
}

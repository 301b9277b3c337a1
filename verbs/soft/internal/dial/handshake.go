package dial

import (
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// dialHandshake runs the dialler's side of the handshake. After the acceptor's proof it calls claim
// and, if that returns true, sends the confirm.
func (c *Connector) dialHandshake(conn net.Conn, peer *wire.Address, claim func() bool) error {
	h := &hello{kind: c.cfg.Kind, src: c.cfg.Self.ID, dst: peer.ID, srcRank: c.cfg.Self.Rank, dstRank: peer.Rank,
		addr: c.cfg.Self.Encode()}
	_, _ = rand.Read(h.nonce[:])
	raw := h.sign(c.cfg.Secret)
	if _, err := conn.Write(raw); err != nil {
		// The acceptor may have refused and closed before it has read everything.
		if _, rerr := readMsg(conn, msgChallenge); isReject(rerr) {
			return rerr
		}
		return err
	}
	challenge, err := readMsg(conn, msgChallenge)
	if err != nil {
		if errors.Is(err, errOutOfTurn) {
			return Refuse(rejectMagic, "something else than tagmatch answers there: %v", err)
		}
		return err
	}
	if err := writeMsg(conn, msgProof, proof(c.cfg.Secret, labelDialler, raw, challenge)); err != nil {
		return err
	}
	mac, err := readMsg(conn, msgAccept)
	if err != nil {
		return err
	}
	if !proven(c.cfg.Secret, labelAcceptor, raw, challenge, mac) {
		e := Refuse(rejectSecret, "the acceptor does not have the secret of this job")
		writeReject(conn, e)
		return e
	}
	if !claim() {
		return errSuperseded
	}
	return writeMsg(conn, msgConfirm, nil)
}

// knows reports whether first is the hello of a peer, whole and seen for the first time.
func (c *Connector) knows(first []byte) bool {
	if len(first) < helloPrefix {
		return false
	}
	n, err := helloLength(first[:helloPrefix])
	if err != nil || len(first) < helloPrefix+n {
		return false
	}
	raw := first[:helloPrefix+n]
	h, err := decodeHello(raw[helloPrefix:])
	if err == nil {
		_, err = c.checkHello(h, raw)
	}
	return err == nil && c.fresh(h) == nil
}

// fresh returns nil for a peer's hello that is seen for the first time.
func (c *Connector) fresh(h *hello) error {
	if !c.nonces.Fresh(h.nonce) {
		return Refuse(rejectHello, "a hello of rank %d that was sent before", h.srcRank)
	}
	return nil
}

// acceptHandshake runs the acceptor's side of the handshake up to the dialler's proof. It returns
// the dialler's address and the acceptor's proof, which accepts the connection.
func (c *Connector) acceptHandshake(v *door.Visitor) (peer *wire.Address, accept []byte, err error) {
	conn := v.Conn
	h, raw, err := readHello(conn)
	if err != nil {
		return nil, nil, err
	}
	if peer, err = c.checkHello(h, raw); err != nil {
		return nil, nil, err
	}
	if err := v.Pass(func() error { return c.fresh(h) }); err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // that of strangers
	if err := c.guard(conn); err != nil {
		return peer, nil, err
	}
	var challenge door.Nonce
	_, _ = rand.Read(challenge[:])
	if err := writeMsg(conn, msgChallenge, challenge[:]); err != nil {
		return peer, nil, err
	}
	mac, err := readMsg(conn, msgProof)
	if err != nil {
		return peer, nil, err
	}
	if !proven(c.cfg.Secret, labelDialler, raw, challenge[:], mac) {
		return peer, nil, Refuse(rejectSecret, "rank %d does not have the secret of rank %d's job", h.srcRank, c.cfg.Self.Rank)
	}
	return peer, proof(c.cfg.Secret, labelAcceptor, raw, challenge[:]), nil
}

// checkHello checks that the dialler is of the job, and whom it wants to reach. It returns who it
// claims to be.
func (c *Connector) checkHello(h *hello, raw []byte) (*wire.Address, error) {
	self := c.cfg.Self
	switch {
	case !signed(c.cfg.Secret, raw):
		return nil, Refuse(rejectSecret, "rank %d does not have the secret of rank %d's job", h.srcRank, self.Rank)
	case h.kind != c.cfg.Kind:
		return nil, Refuse(rejectKind, "a %q connection came to a %q listener: use the same build and settings on all ranks", h.kind, c.cfg.Kind)
	case h.dst != self.ID || h.dstRank != self.Rank:
		return nil, Refuse(rejectDestination, "device %x of rank %d is not here: this is device %x of rank %d",
			h.dst[:4], h.dstRank, self.ID[:4], self.Rank)
	case h.src == self.ID:
		return nil, Refuse(rejectDestination, "a device does not connect to itself")
	}
	peer, err := wire.DecodeAddress(h.addr)
	if err != nil {
		return nil, Refuse(rejectHello, "hello of rank %d: %v", h.srcRank, err)
	}
	if peer.ID != h.src || peer.Rank != h.srcRank {
		return nil, Refuse(rejectHello, "hello of rank %d carries the address of another device", h.srcRank)
	}
	return peer, nil
}

func isReject(err error) bool {
	var r *rejectError
	return errors.As(err, &r)
}

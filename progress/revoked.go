package progress

import "github.com/tagmatch/tagmatch/transport"

// A sender deregisters the buffer of a message that is being read for one of three reasons: it
// withdraws the message, and has sent WITHDRAW before; it has given this rank up; or it closes its
// engine. The reader finds the buffer gone before it hears why, and waits for that in
// peer.revoked: WITHDRAW, or the end of the connection, is on its way.

// revoked reports that the message of a receive was taken back, and that nothing says yet why.
func (op *Op) revoked() bool {
	r := &op.read
	return r.err == transport.ErrDeregistered && r.active == 0 && !r.withdraw && op.e.peers[r.src].lost == nil && op.e.broken == nil
}

// revokedInDevice has a matched receive wait, whose message the device was reading.
func (op *Op) revokedInDevice() bool {
	op.read.err = transport.ErrDeregistered
	if !op.revoked() || !op.e.reads.take(op) {
		return false
	}
	op.move(opReading)
	op.e.peers[op.read.src].revoked.push(op)
	return true
}

// endRevoked ends a receive of p.revoked.
func (p *peer) endRevoked(op *Op, err error) {
	p.revoked.remove(op)
	op.e.reads.release(op)
	op.complete(Status{}, err)
}

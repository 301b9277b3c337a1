package links

// handshake is how far the connection to one rank has come, at this end. It is the same at both
// ends, so that nothing is to be decided where both begin:
//
//  1. An end that wants to post, or was told HELLO, makes its queue pairs and tells HELLO.
//  2. An end that was told HELLO as well connects them, and tells READY: they take messages now.
//  3. An end that was told READY may post.
//
// So nobody posts to a queue pair that is not connected, which a NIC answers with a second of
// silence. It is pure: due says what the caller is to do, next and told say what was done. What is
// due waits as long as it cannot be done, as when Tell has no room.
type handshake struct {
	stage action // what this end does next; it has done all before
	hello bool   // the peer has told HELLO
	ready bool   // the peer has told READY
}

// action is what an end does for its connection.
type action uint8

const (
	makePairs action = iota // in INIT
	tellHello
	connectPairs // to RTR and RTS, with what HELLO says
	tellReady
	open    // the peer may be posted to
	nothing // nothing is due, for now or at all
)

// due is what this end is to do now.
func (h *handshake) due() action {
	if h.stage == connectPairs && !h.hello || h.stage == open && !h.ready {
		return nothing
	}
	return h.stage
}

// next records that what was due was done.
func (h *handshake) next() { h.stage++ }

// toldHello records a HELLO of the peer, and reports whether it comes in its turn.
func (h *handshake) toldHello() bool {
	if h.hello {
		return false
	}
	h.hello = true
	return true
}

// toldReady records a READY of the peer, and reports whether it comes in its turn: behind its
// HELLO, and behind that of this end, which it answers.
func (h *handshake) toldReady() bool {
	if !h.hello || h.stage <= tellHello || h.ready {
		return false
	}
	h.ready = true
	return true
}

// slow reports whether a NIC takes about a millisecond for it.
func (a action) slow() bool { return a == makePairs || a == connectPairs }

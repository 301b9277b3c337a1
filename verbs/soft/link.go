package soft

import (
	"github.com/tagmatch/tagmatch/verbs"
)

// opcode is what a packet asks for or answers.
type opcode uint8

const (
	opSend         opcode = 1 + iota // payload for a receive of the peer's QP
	opWrite                          // payload for addr/rkey
	opReadReq                        // asks for total bytes from addr/rkey; psn names the request; imm 1: a refusal fails it alone
	opReadResp                       // payload at offset addr of read psn; status: refused, the rest does not come
	opAtomicReq                      // payload: compare/add and swap, 16 bytes little-endian; imm: 0 compare and swap, 1 fetch and add
	opAtomicResp                     // payload: the old value, 8 bytes
	opAck                            // requests up to and including psn have been executed
	opNak                            // request psn failed with status at the target; nothing after it was executed
	opDisconnected                   // the sender's QP left RTS: flush; imm discDestroyed: it exists no more
	opPushReq                        // asks for total bytes from addr/rkey to be written to what the payload names
	opPushResp                       // the push psn is over, with status

	opEnd // not an opcode
)

// discDestroyed in opDisconnected: the program has destroyed the QP. 0: it is in error.
const discDestroyed = 1

// Flags of a packet.
const (
	flagFirst     uint8 = 1 << 0 // first packet of its message
	flagLast      uint8 = 1 << 1 // last packet of its message
	flagImm       uint8 = 1 << 2 // imm is immediate data
	flagInv       uint8 = 1 << 3 // imm is an rkey to invalidate
	flagSolicited uint8 = 1 << 4
	flagAckReq    uint8 = 1 << 5 // answer with opAck (cumulative) once executed
)

// header is a packet's header, decoded. Links encode it as they like (docs in wireformat of each
// link), always completely, and check every field that they use themselves; the device checks the
// rest.
type header struct {
	op     opcode
	flags  uint8
	status uint8  // opNak, opReadResp: verbs.WCStatus for the requester
	length uint32 // payload bytes of this packet
	qpn    uint32 // destination QP
	psn    uint32 // sequence number of the requester's work request, modulo 2^32
	imm    uint32
	rkey   uint32
	addr   uint64
	total  uint64 // bytes of the whole message
}

// link carries packets between this device and one peer device, both ways, in order and without
// loss until it breaks. All methods are called by the device's owner, never at once.
//
// There is one link per peer device, however many QPs use it. It exists from the first QP that
// names the peer and connects by itself at the first send; until it is up send returns false.
type link interface {
	// send takes a packet whose payload is head followed by body (either may be empty; together at
	// most maxPayload() bytes). It copies or transmits everything and returns true, or does nothing
	// and returns false: no room now, try again after the next poll. It never blocks. Transmission
	// of what it took may be put off until flush.
	send(h *header, head, body []byte) bool
	// maxPayload is the most payload bytes of one packet, maxReadPayload of one with what a read
	// has read. Constant.
	maxPayload() int
	maxReadPayload() int
	// memory is direct access to the peer's registered memory, or nil where reads must go by
	// packets. It may change from nil when the link comes up.
	memory() remoteMemory
	// close ends the link; the peer sees linkDown. Idempotent.
	close()
}

// remoteMemory reads a peer's registered memory without the peer's help.
type remoteMemory interface {
	// read copies len(dst) bytes (at most maxChunk) from the peer's address addr inside region
	// rkey. It checks bounds, access and generation before and after the copy; anything but success
	// means that dst is undefined.
	read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus
}

// maxChunk is the most bytes that one remoteMemory.read moves, so that nothing holds the device's
// owner for long.
const maxChunk = 256 << 10

// receiver is what a wire calls back: the device. Calls come only from inside wire.poll.
type receiver interface {
	// receive takes one packet. payload is lent for the call and, when lent is true on return,
	// until the next wire.release. ok false means: cannot be taken now (no receive posted, QP not
	// yet connected); the wire must offer the same packet again at a later poll and nothing behind
	// it on this link before.
	receive(l link, h *header, payload []byte) (ok, lent bool)
	// linkDown reports a broken link, once. err says what happened (peer process gone, protocol
	// violation, ...).
	linkDown(l link, err error)
	// linkYielded reports, once, a link to the device at a that this wire will not make; nothing
	// was sent or received on it.
	linkYielded(l link, a *address, err error)
	// linkUp reports a link, before it carries anything, to a device that may have left another
	// wire for it.
	linkUp(l link, a *address)
	// place is for wires that can put payload bytes where they belong without a copy in between
	// (TCP): it names the destination of a packet whose payload has not been read yet. nil means:
	// read it into a buffer of your own and call receive.
	place(l link, h *header) []byte
}

// wire makes links of one kind. Methods are called by the device's owner, except as noted.
type wire interface {
	name() string
	// connect returns the link to the device at a; the same link for the same device every time.
	connect(a *address) (link, error)
	// poll receives from all links that have something, at most budget packets, and finishes
	// connections that came up or broke in the background. It returns how many packets were taken.
	// It must cost next to nothing when idle.
	poll(budget int) int
	// release ends the lending of payloads handed out by earlier polls. The device calls it before
	// each poll.
	release()
	// flush transmits what links have put off.
	flush()
	// arm makes arrivals on any link, room on a link that was full, and links coming up or breaking
	// wake the notifier; disarm takes that back. After arm the owner polls once more before it
	// sleeps, so arm must be a full barrier.
	arm()
	disarm()
	// close ends all links and background goroutines and waits for those.
	close()
}

// notifier is where the owner sleeps: one per device, shared by its wires.
type notifier interface {
	// wait blocks until wake or until a file descriptor added to it is ready. Spurious returns are
	// allowed. Any goroutine, one at a time.
	wait() error
	// wake ends the current or the next wait. Any goroutine; cheap when called again before wait
	// returned.
	wake()
	close() error
}

// Package wire is what a device and its wires say to each other: packets, the links that carry
// them, the receiver that takes them, and the addresses of devices. Wires know nothing else of the
// device.
package wire

import (
	"github.com/tagmatch/tagmatch/verbs"
)

// Opcode is what a packet asks for or answers.
type Opcode uint8

const (
	OpSend         Opcode = 1 + iota // payload for a receive of the peer's QP
	OpWrite                          // payload for addr/rkey
	OpReadReq                        // asks for total bytes from addr/rkey; psn names the request; imm 1: a refusal fails it alone
	OpReadResp                       // payload at offset addr of read psn; status: refused, the rest does not come
	OpAtomicReq                      // payload: compare/add and swap, 16 bytes little-endian; imm: 0 compare and swap, 1 fetch and add
	OpAtomicResp                     // payload: the old value, 8 bytes
	OpAck                            // requests up to and including psn have been executed
	OpNak                            // request psn failed with status at the target; nothing after it was executed
	OpDisconnected                   // the sender's QP left RTS: flush; imm Destroyed: it exists no more
	OpPushReq                        // asks for total bytes from addr/rkey to be written to what the payload names
	OpPushResp                       // the push psn is over, with status

	OpEnd // not an opcode
)

// Destroyed in OpDisconnected: the program has destroyed the QP. 0: it is in error.
const Destroyed = 1

// Flags of a packet.
const (
	FlagFirst     uint8 = 1 << 0 // first packet of its message
	FlagLast      uint8 = 1 << 1 // last packet of its message
	FlagImm       uint8 = 1 << 2 // imm is immediate data
	FlagInv       uint8 = 1 << 3 // imm is an rkey to invalidate
	FlagSolicited uint8 = 1 << 4
	FlagAckReq    uint8 = 1 << 5 // answer with OpAck (cumulative) once executed
)

// Header is a packet's header, decoded. Links encode it as they like (each wire in its own format),
// always completely, and check every field that they use themselves; the device checks the rest.
type Header struct {
	Op     Opcode
	Flags  uint8
	Status uint8  // OpNak, OpReadResp: verbs.WCStatus for the requester
	Length uint32 // payload bytes of this packet
	QPN    uint32 // destination QP
	PSN    uint32 // sequence number of the requester's work request, modulo 2^32
	Imm    uint32
	RKey   uint32
	Addr   uint64
	Total  uint64 // bytes of the whole message
}

// Link carries packets between this device and one peer device, both ways, in order and without
// loss until it breaks. All methods are called by the device's owner, never at once.
//
// There is one link per peer device, however many QPs use it. It exists from the first QP that
// names the peer and connects by itself at the first send; until it is up send returns false.
type Link interface {
	// Send takes a packet whose payload is head followed by body (either may be empty; together at
	// most MaxPayload bytes). It copies or transmits everything and returns true, or does nothing
	// and returns false: no room now, try again after the next poll. It never blocks. Transmission
	// of what it took may be put off until flush.
	Send(h *Header, head, body []byte) bool
	// MaxPayload is the most payload bytes of one packet, MaxReadPayload of one with what a read
	// has read. Constant.
	MaxPayload() int
	MaxReadPayload() int
	// Memory is direct access to the peer's registered memory, or nil where reads must go by
	// packets. It may change from nil when the link comes up.
	Memory() RemoteMemory
	// Close ends the link; the peer sees LinkDown. Idempotent.
	Close()
}

// RemoteMemory reads a peer's registered memory without the peer's help.
type RemoteMemory interface {
	// Read copies len(dst) bytes (at most MaxChunk) from the peer's address addr inside region
	// rkey. It checks bounds, access and generation before and after the copy; anything but success
	// means that dst is undefined.
	Read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus
}

// MaxChunk is the most bytes that one RemoteMemory.Read moves, so that nothing holds the device's
// owner for long.
const MaxChunk = 256 << 10

// Receiver is what a wire calls back: the device. Calls come only from inside Wire.Poll.
type Receiver interface {
	// Receive takes one packet. payload is lent for the call and, when lent is true on return,
	// until the next Wire.Release. ok false means: cannot be taken now (no receive posted, QP not
	// yet connected); the wire must offer the same packet again at a later poll and nothing behind
	// it on this link before.
	Receive(l Link, h *Header, payload []byte) (ok, lent bool)
	// LinkDown reports a broken link, once. err says what happened (peer process gone, protocol
	// violation, ...).
	LinkDown(l Link, err error)
	// LinkYielded reports, once, a link to the device at a that this wire will not make; nothing
	// was sent or received on it.
	LinkYielded(l Link, a *Address, err error)
	// LinkUp reports a link, before it carries anything, to a device that may have left another
	// wire for it.
	LinkUp(l Link, a *Address)
	// Place is for wires that can put payload bytes where they belong without a copy in between
	// (TCP): it names the destination of a packet whose payload has not been read yet. nil means:
	// read it into a buffer of your own and call receive.
	Place(l Link, h *Header) []byte
}

// PlaceChecker is a receiver that wants to know, in a build with -tags invariants, what is about to
// be written to a place of its own.
type PlaceChecker interface {
	Places(dst []byte)
}

// Wire makes links of one kind. Methods are called by the device's owner, except as noted.
type Wire interface {
	Name() string
	// Connect returns the link to the device at a; the same link for the same device every time.
	Connect(a *Address) (Link, error)
	// Poll receives from all links that have something, at most budget packets, and finishes
	// connections that came up or broke in the background. It returns how many packets were taken.
	// It must cost next to nothing when idle.
	Poll(budget int) int
	// Release ends the lending of payloads handed out by earlier polls. The device calls it before
	// each poll.
	Release()
	// Flush transmits what links have put off.
	Flush()
	// Arm makes arrivals on any link, room on a link that was full, and links coming up or breaking
	// wake the notifier; Disarm takes that back. After Arm the owner polls once more before it
	// sleeps, so Arm must be a full barrier.
	Arm()
	Disarm()
	// Close ends all links and background goroutines and waits for those.
	Close()
}

// Yielder is a wire that may leave a peer to another one.
type Yielder interface {
	Yield(a *Address, why error) (Link, bool)
}

// Signaller is a wire that signals only what comes after Arm, by a descriptor that Arm empties.
type Signaller interface {
	// Pending says that something is here of which no signal tells.
	Pending() bool
	// Unsignal takes signals that came too late.
	Unsignal()
}

// PushLink is a link whose peer may be able to write to our memory.
type PushLink interface {
	// CanPush says that the kernel lets the peer write to our memory, as far as we know, and us
	// read the peer's: that is what is left when it does not.
	CanPush() bool
	// CannotPush is called when the kernel did not.
	CannotPush()
	// Quiet returns when the peer copies nothing to a region that has been removed before.
	Quiet()
}

// RemoteWriter is RemoteMemory that can be written to.
type RemoteWriter interface {
	// Write copies src to the peer's address addr inside region rkey.
	Write(src []byte, addr uint64, rkey uint32) verbs.WCStatus
}

// Notifier is where the owner sleeps: one per device, shared by its wires.
type Notifier interface {
	// Wait blocks until wake or until a file descriptor added to it is ready. Spurious returns are
	// allowed. Any goroutine, one at a time.
	Wait() error
	// Wake ends the current or the next wait. Any goroutine; cheap when called again before wait
	// returned.
	Wake()
	Close() error
}

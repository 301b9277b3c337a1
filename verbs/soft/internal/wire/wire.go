// Package wire is the contract between a software device and its wires: packets, the links that
// carry them, the receiver that takes them, and the addresses of devices.
package wire

import "github.com/tagmatch/tagmatch/verbs"

// Opcode is the kind of a packet. The fields named are those of Header.
type Opcode uint8

const (
	// OpSend carries bytes of a SEND.
	OpSend Opcode = 1 + iota
	// OpWrite carries bytes of an RDMA WRITE, for address Addr of region RKey.
	OpWrite
	// OpReadReq asks for Total bytes from address Addr of region RKey. With Imm 1 a read that is
	// not allowed fails alone (verbs.QPInitAttr.ReadFaults); with 0 it fails the queue pair.
	OpReadReq
	// OpReadResp carries the bytes from offset Addr on of read PSN. With a Status it refuses the
	// read, and is the last packet of it.
	OpReadResp
	// OpAck says that the requests up to and including PSN were executed.
	OpAck
	// OpNak says that request PSN failed with Status, and that no later one was executed.
	OpNak
	// OpDisconnected says that the sender's QP, number Addr, answers no more, because of Status.
	// Imm is Destroyed if the program has destroyed or reset it, 0 if it has failed.
	OpDisconnected
	// OpPushReq asks the peer to write Total bytes from address Addr of its region RKey to the
	// address of this device that the payload holds, with the grant that it holds.
	OpPushReq
	// OpPushResp says that push PSN has ended with Status.
	OpPushResp

	// OpTell carries a message between the devices, of 1 to verbs.MaxTell bytes, which is one
	// packet whatever Link.MaxPayload is. QPN is 0.
	OpTell

	OpEnd // one above the last opcode
)

// Destroyed is a value of Header.Imm, see OpDisconnected.
const Destroyed = 1

// Flags of a packet.
const (
	FlagFirst     uint8 = 1 << 0 // first packet of its message
	FlagLast      uint8 = 1 << 1 // last packet of its message
	FlagImm       uint8 = 1 << 2 // Imm is immediate data
	FlagSolicited uint8 = 1 << 3 // the receive completion is a solicited event, and the packet urgent
	FlagAckReq    uint8 = 1 << 4 // wants a cumulative OpAck once the request is executed
)

// Header is a decoded packet header. Each wire encodes all fields, in a format of its own. A wire
// checks the fields that it uses itself, and the device checks all others.
//
// Op is not beside Flags, and PSN is in front of QPN, so that no wire loads two of them at once: a
// load that is wider than the store before it waits for that store.
type Header struct {
	Op     Opcode
	Status uint8  // a verbs.WCStatus for the requester; OpSend: the requester's rnr_retry
	Length uint32 // payload bytes of this packet
	Flags  uint8  // Flag values
	PSN    uint32 // number of the work request on its QP, modulo 2^32; not one for each packet
	QPN    uint32 // destination QP
	Imm    uint32 // immediate data; see also the opcodes
	RKey   uint32 // region of the receiving device
	Addr   uint64 // address in region RKey; see also the opcodes
	Total  uint64 // bytes of the whole message
}

// Urgent reports whether a device should see to a packet while its program computes: reads, pushes,
// their ends, and SENDs that ask for it. Other SENDs, WRITEs, acknowledgements and what is told are
// of use to the program only.
func (h *Header) Urgent() bool {
	switch h.Op {
	case OpSend, OpWrite, OpAck, OpTell:
		return h.Flags&FlagSolicited != 0
	}
	return true
}

// Link carries packets between this device and one peer device, both ways, in order and without
// loss until it breaks. Only the device's owner calls it.
//
// There is one link per peer device, however many QPs use it. It is made for the first QP or told
// message that names the peer, and connects at the first Send; until it is up, Send returns false.
type Link interface {
	// Peer is the address of the peer device. It does not change.
	Peer() *Address
	// Send sends a packet whose payload is head followed by body. Either may be empty; together
	// they have h.Length bytes, at most MaxPayload. Send copies or transmits all of it and returns
	// true, or does nothing and returns false: there is no room, try again after the next Poll. It
	// never blocks. What it has copied may not leave before Flusher.Flush.
	Send(h *Header, head, body []byte) bool
	// HasRoom returns false where Send would, of a packet with a body of n bytes and no head. It is
	// for a caller that prepares the body at some cost; Send may return false after it.
	HasRoom(n int) bool
	// MaxPayload is the most payload bytes of one packet, and MaxReadPayload that of an OpReadResp.
	// Both are constant.
	MaxPayload() int
	MaxReadPayload() int
	// Memory gives direct access to the peer's registered memory, as far as it reaches; nil: there
	// is none, and all RDMA READs go by packets. What is nil before the link is up may be different
	// afterwards.
	Memory() RemoteMemory
	// Close ends the link, and the peer's receiver gets LinkDown. Closing again does nothing.
	Close()
	// Accuse is Close because the peer has broken the protocol. The peer's receiver gets LinkDown
	// with verbs.ErrAccused, where there is room to say so.
	Accuse()
}

// Holder is a link that can show its peer several packets together.
type Holder interface {
	// Hold is Send of a short packet that is not urgent, which waits for Publish. It returns false,
	// and does nothing, for others, and where Send may still find room. Between the first Hold and
	// Publish no other call is made.
	Hold(h *Header, head, body []byte) bool
	// Publish sends the packets that are held, of which there is one at least.
	Publish()
}

// RemoteMemory reads a peer's registered memory without the peer's help.
type RemoteMemory interface {
	// Reaches reports whether Read reaches region rkey, if the peer has one; false: an RDMA READ of
	// it goes by packets.
	Reaches(rkey uint32) bool
	// Read copies len(dst) bytes, at most MaxChunk, from the peer's address addr in region rkey. It
	// checks bounds, rights and key before and after the copy. The contents of dst are undefined
	// unless it returns WCSuccess.
	Read(dst []byte, addr uint64, rkey uint32) verbs.WCStatus
}

// MaxChunk is the most bytes of one RemoteMemory.Read or RemoteWriter.Write, so that no call keeps
// the device's owner for long.
const MaxChunk = 256 << 10

// Receiver is the device as its wires see it. They call it only from inside Wire.Poll and
// Wire.Close.
type Receiver interface {
	// Receive takes one packet; payload is lent for the call. If it does not return ok, the packet
	// cannot be taken now (no receive is posted, or the QP is not connected yet): the wire passes
	// it again at a later Poll, and before that no other packet of the link. Unless it returns
	// more, the wire is to leave the link's other packets to a later Poll.
	Receive(l Link, h *Header, payload []byte) (ok, more bool)
	// LinkDown reports, once, that a link has broken, and why: verbs.ErrProtocol is in the chain of
	// what the peer must not send.
	LinkDown(l Link, err error)
	// LinkYielded reports, once, that the wire will not connect to the device at a, because of err.
	// Nothing was sent or received on the link.
	LinkYielded(l Link, a *Address, err error)
	// LinkUp reports that a link to the device at a has come up, before it carries anything.
	LinkUp(l Link, a *Address)
	// Place returns where the payload of a packet goes, for wires that can read it from a socket
	// directly to there (TCP). They then call Receive with that slice. nil: use any buffer.
	Place(l Link, h *Header) []byte
	// PlaceGone reports that the memory which Place has named cannot be written. Place does not
	// name it again; Receive is called with any buffer of that length.
	PlaceGone(l Link, h *Header)
}

// PlaceChecker is a receiver that checks, in a build with -tags invariants, the destinations that
// Place has returned.
type PlaceChecker interface {
	// Places checks that bytes may be written to dst, which follows.
	Places(dst []byte)
}

// Wire makes links of one kind. Only the device's owner calls it.
type Wire interface {
	Name() string
	// Reaches returns nil if Connect would return a link. It makes nothing.
	Reaches(a *Address) error
	// Connect returns the link to the device at a: the same link each time, until it breaks.
	Connect(a *Address) (Link, error)
	// Poll receives at most budget packets from all links, and handles connections that were made
	// or have broken in the background. It returns how many packets the receiver took. It must cost
	// next to nothing when idle.
	Poll(budget int) int
	// Arm makes the notifier wake for arrivals on any link, for room on a link that was full, and
	// for links that come up or break; Disarm ends that. Unless the owner is asleep, and nobody
	// polls before it is woken, a wire may leave out arrivals that are not urgent. The owner polls
	// once more after Arm before it sleeps, so Arm must be a full memory barrier.
	Arm(asleep bool)
	Disarm()
	// Close ends all links, and ends and awaits the wire's background goroutines.
	Close()
}

// Flusher is a wire whose links may only copy a packet in Send. Flush transmits those packets.
type Flusher interface{ Flush() }

// Yielder is a wire that can leave a peer to another wire. Yield does so, because of why, unless
// there is a connection to the peer or cannot be one, and then returns true, and the link to the
// peer, if there is one.
type Yielder interface {
	Yield(a *Address, why error) (Link, bool)
}

// Signaller is a wire whose Arm discards the signals of earlier arrivals.
type Signaller interface {
	// Pending reports whether something has arrived that no signal announces.
	Pending() bool
	// Unsignal discards signals that have come after Disarm.
	Unsignal()
}

// PushLink is a link whose peer may be able to write to this process's memory.
type PushLink interface {
	// Upper reports whether this end has the higher rank.
	Upper() bool
	// CanPush reports whether the kernel is believed to let the peer write to this process's memory
	// and this process read the peer's, which it must do where a push fails.
	CanPush() bool
	// Attended reports whether the peer's device polls, as far as is known, and does not sleep.
	Attended() bool
	// Busy reports whether the peer is writing to this process's memory.
	Busy() bool
	// CannotPush records that the kernel has refused the peer's write.
	CannotPush()
	// Grant returns a number, not 0, with which the peer may write to this process's memory where
	// it is asked to. It returns false when too many are in use.
	Grant() (grant uint32, ok bool)
	// Return lets a grant be given again: the peer was not asked, or has answered.
	Return(grant uint32)
	// Revoke ends the push of a grant: what is left of it is refused, with WCRemAccessErr. The peer
	// may be in the middle of a chunk, whose number is returned: until Writes of it is false it may
	// still write for the grant. 0: it does not.
	Revoke(grant uint32) (chunk uint32)
	// RevokeAll is Revoke and Return for all grants of the link.
	RevokeAll() (chunk uint32)
	// Writes reports whether the peer, whose process lives, is still in the middle of a chunk that
	// Revoke or RevokeAll returned. It may be stopped there for any time. Writes(0) is false. It is
	// right after the end of the link, too.
	Writes(chunk uint32) bool
}

// RemoteWriter is RemoteMemory that can be written to.
type RemoteWriter interface {
	// Write copies src, at most MaxChunk bytes, to the peer's address addr, if the peer has not
	// revoked that grant (PushLink).
	Write(src []byte, addr uint64, grant uint32) verbs.WCStatus
}

// RemotePieces is RemoteMemory, and a RemoteWriter, that copies several pieces by one system call.
type RemotePieces interface {
	// ReadMany and WriteMany copy pieces in their order, at most MaxPieces, of together at most
	// MaxChunk bytes, as Read or Write would each. They return how many were copied: of the one
	// behind these, a call of Read or Write tells why not. They retain nothing.
	ReadMany(ps []Piece) int
	WriteMany(ps []Piece) int
}

// Piece is bytes of this process, and as many of a peer.
type Piece struct {
	Data []byte // ours
	Addr uint64 // the peer's
	RKey uint32 // to read: region of the peer that Addr lies in; to write: the peer's grant
}

// MaxPieces is the most pieces of a call of RemotePieces.
const MaxPieces = 8

// Notifier is where the owner sleeps: one per device, shared by its wires.
type Notifier interface {
	// Wait blocks until Wake is called or a file descriptor of the notifier is ready. It may return
	// early. Any goroutine may call it, one at a time.
	Wait() error
	// Wake ends the Wait under way, or the next one. Any goroutine may call it; further calls
	// before Wait returns are cheap.
	Wake()
	Close() error
}

// Rotate moves the first element of a list to its end, so that lists are served round-robin.
func Rotate[T any](list []T) {
	if len(list) > 1 {
		first := list[0]
		copy(list, list[1:])
		list[len(list)-1] = first
	}
}

package transport

import "errors"

// ErrAgain is back-pressure, not failure: nothing was posted; Poll, then post again. Grant,
// TagList.Del and TagList.ForceDel never return it: the transport queues them.
var ErrAgain = errors.New("transport: no room now, poll and post again")

// ErrDeregistered is the error of a read from or to memory that was deregistered meanwhile. The
// link stays up (Caps.Revoke).
var ErrDeregistered = errors.New("transport: the memory of a read was deregistered")

// ErrUnreadable is the error of a read from memory that is registered and cannot be read: the
// peer's program has unmapped or protected it. The link stays up (Caps.Revoke).
var ErrUnreadable = errors.New("transport: the peer's memory cannot be read")

// ErrUnwritable is the error of a read to memory that cannot be written: the program of this rank
// has unmapped or protected it. The link stays up (Caps.Revoke).
var ErrUnwritable = errors.New("transport: the memory that a read goes to cannot be written")

// ErrNoMemory is in the chain of the error of Register and Read where no memory can be registered,
// and none will be free by itself. It says what to do. The link stays up.
var ErrNoMemory = errors.New("no memory can be registered")

// ErrProtocol is in the chain of the error of Sink.PeerLost where either end broke the protocol.
var ErrProtocol = errors.New("peer broke the protocol")

// ErrAccused is the ErrProtocol of a link that the peer has broken off, as it says that this end
// broke the protocol.
var ErrAccused error = accused{}

type accused struct{}

func (accused) Error() string {
	return "it says that this rank broke the protocol: check that all ranks run the same build of the program"
}
func (accused) Unwrap() error { return ErrProtocol }

// Caps are the capabilities of a transport; constant after New.
type Caps struct {
	Name     string // "rc", "tmsrq"
	Device   string // verbs.Device.Name
	MaxEager int    // largest payload of SendEager, bytes
	MaxCtrl  int    // largest message of SendCtrl, bytes
	MaxRead  uint64 // largest Read, bytes
	MaxHdr   int    // largest RndvHdr.Extra, bytes
	// Revoke: Dereg, at either end of a read, has that read alone fail, with ErrDeregistered, and
	// Abandon works. Without it Dereg during a read ends the link, and Abandon is not called.
	Revoke bool
}

// RndvHdr describes a rendezvous request: the sender's registered buffer, which the receiver's side
// reads.
type RndvHdr struct {
	AppCtx uint32 // identifies the send; comes back in Fin
	Tag    uint64
	VA     uint64 // address of the buffer, from Region.Addr
	RKey   uint32
	Len    uint64 // bytes of the message
	Extra  []byte // software header, Caps.MaxHdr bytes at most; lent during Sink.Rndv
}

// Eager is one message of Transport.SendEagers.
type Eager struct {
	Tag     uint64
	Payload []byte
}

// MaxEagers is the most messages of one SendEagers.
const MaxEagers = 16

// MaxGreeting is the most bytes of Sink.Greeting.
const MaxGreeting = 64

// Region is registered memory.
type Region interface {
	Addr() uint64
	RKey() uint32
	// Dereg deregisters the memory: peers' reads fail from then on and, without Caps.Revoke, end
	// the link to this rank.
	Dereg() error
}

// Transport moves messages between ranks. Messages to one peer (eager, rendezvous requests,
// control, Fin) arrive in the order of the calls. The first that is posted to a peer begins a
// connection: it and all others return ErrAgain until Sink.Connected. There is no limit to how long
// that takes, as the peer has to poll. Calls for a lost peer return ErrAgain until Sink.PeerLost
// has reported the loss, and from then on an error that is not.
type Transport interface {
	Caps() Caps
	// Address is what the peers pass to Connect: version, mode, job, rank, size, eager limit and
	// the device's address. It is as long for a large job as for a small one.
	Address() []byte
	// Connect says how rank peer is reached. addr is the peer's Transport.Address: the caller does
	// not change it any more. It is called once for each rank, own included, before the first Poll.
	// An error names the difference in version, mode or eager limit, if any, or says that no wire
	// leads there, or names another rank with the same device. Nothing is made or sent: the
	// connection is made at the first post to the peer, or of the peer to this rank, while both
	// poll.
	Connect(peer int, addr []byte) error

	// Wire names the wire to a peer, as the device calls it; empty where the device has only one.
	// Before the peer is connected it is the one that its address promises. It may change once,
	// before the first message, and remains after the peer is lost.
	Wire(peer int) string

	// SendEager sends a tagged message; payload is copied before it returns.
	SendEager(peer int, appCtx uint32, tag uint64, payload []byte) error
	// SendEagers sends several tagged messages, at most MaxEagers, in their order, as one chain of
	// work requests. It returns how many were sent, from the first on: of the one behind these a
	// call of SendEager tells why not. Payloads are copied before it returns.
	SendEagers(peer int, appCtx uint32, msgs []Eager) (sent int)
	// SendRndv sends a rendezvous request. The buffer stays registered until Sink.Fin, or until the
	// engine withdraws the message.
	SendRndv(peer int, h *RndvHdr) error
	// SendFin tells the sender of rendezvous appCtx that its buffer was read.
	SendFin(peer int, appCtx uint32) error
	// SendCtrl sends an untagged control message, ordered with the others; msg is copied.
	SendCtrl(peer int, msg []byte) error

	// Register makes buf readable for a peer. The transport holds the slice until Dereg. ErrAgain:
	// this peer has its share of the device's regions, other peers may still get some; or the
	// device has no memory until other sends or reads end. Where none is under way that is
	// ErrNoMemory, for Read too.
	Register(peer int, buf []byte) (Region, error)
	// Read copies len(dst) bytes from a peer's registered memory; Sink.ReadDone(id) reports the
	// end. The transport owns dst until then. Reads from one peer end in the order of the calls.
	Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error

	// Abandon releases the destination of the reads with this id: nothing is written to it after
	// Abandon has returned true. Sink.ReadDone still follows for each read. It returns false while
	// the peer's processor is in the middle of a copy to it: then the reads go on. Only with
	// Caps.Revoke.
	Abandon(peer int, id uint64) bool

	// Disconnect ends the connection to a rank that the engine gave up because of err: outstanding
	// reads end with Sink.ReadDone, and the rank is told, with the text of err, if it is reachable.
	// If it is not connected yet it will not be: it is told so when it asks. Sink.PeerLost may
	// follow.
	Disconnect(peer int, err error)

	// Grant stores total, a cumulative count of credit bytes, into this rank's cell at the peer. It
	// connects to the peer as a message does, also where total is not new, and is posted when the
	// connection is made. A later Grant replaces an earlier one; only the newest must arrive. There
	// is no back-pressure: without room the transport posts it later, and Drained waits for it. An
	// error means that the peer is lost, as Sink.PeerLost reports. A Grant does not wake the peer.
	// Granted reads the cell that the peer writes at this rank.
	Grant(peer int, total uint64) error
	Granted(peer int) uint64

	// Poll makes progress and calls the Sink. It returns the number of events; zero means idle.
	Poll() (int, error)
	// Enough, called from inside of Poll, lets this Poll end soon: what has arrived behind is left
	// to the next one. It is a hint.
	Enough()
	// Drained reports whether everything posted so far has reached the peers' devices.
	Drained() bool

	// Arm requests that Wait end at the next event; Disarm cancels that. Protocol: Arm, Poll once
	// more, Wait only if that found nothing. Wait and Wake may be called by any goroutine without
	// the owner's lock, Wait by one at a time.
	Arm() error
	Disarm()
	Wait() error
	Wake()

	// TagList is the device's tag list, or nil where matching is in software.
	TagList() TagList

	// Close ends all connections; no call of the Sink follows. Whatever would be posted later,
	// Register and Read included, is refused with an error.
	Close() error
}

// Sink is the interface that a transport calls from inside Poll; the engine implements it. Slices
// are lent. A Sink may call the transport's posting methods, but not Poll.
type Sink interface {
	// Greeting is what the peer's Connected gets: at most MaxGreeting bytes, which are copied. It
	// is called once for each peer, inside Poll, when a connection to it begins, before any message
	// of the peer is reported.
	Greeting(peer int) []byte
	// Connected reports that the connection to a peer is made: from now on posts to it succeed,
	// also inside of this call. greeting is that of the peer's Sink, lent, and as little to be
	// trusted as a message. Messages of the peer may have come before. It is called once, before
	// any post to the peer has succeeded. An error ends the link with the peer, which is told; it
	// is ErrProtocol where the greeting breaks the protocol. The own rank gets both calls too.
	Connected(peer int, greeting []byte) error
	// Eager reports an unexpected eager message.
	Eager(src int, appCtx uint32, tag uint64, payload []byte)
	// Rndv reports an unexpected rendezvous request.
	Rndv(src int, h *RndvHdr)
	Fin(src int, appCtx uint32)
	Ctrl(src int, msg []byte)
	ReadDone(id uint64, err error)
	// PeerLost reports, once, that a peer cannot be reached any more. Outstanding reads from it end
	// with ReadDone before.
	PeerLost(peer int, err error)
	TagSink
}

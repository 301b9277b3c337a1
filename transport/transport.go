package transport

import "errors"

// ErrAgain is back-pressure, not failure: nothing was posted; post again after the next Poll.
// Grant, TagList.Del and TagList.Drop never return it: what finds no room there is the transport's
// to keep.
var ErrAgain = errors.New("transport: no room now, poll and post again")

// ErrWithdrawn is the end of a read from, or to, memory that its owner has withdrawn. The link goes
// on (Caps.Revoke).
var ErrWithdrawn = errors.New("transport: the memory to be read was withdrawn")

// Caps are what a transport can do; constant after New.
type Caps struct {
	Name     string // "rc", "tmsrq"
	Device   string // verbs.Device.Name
	MaxEager int    // largest payload of SendEager, bytes
	MaxCtrl  int    // largest message of SendCtrl, bytes
	MaxRead  uint64 // largest Read, bytes
	MaxHdr   int    // largest RndvHdr.Extra, bytes
	Revoke   bool   // Dereg during a read is legal: it ends with ErrWithdrawn; Abandon works
}

// RndvHdr describes a rendezvous request: the sender's registered buffer, to be read by the
// receiver's side.
type RndvHdr struct {
	AppCtx uint32 // identifies the send; comes back in Fin
	Tag    uint64
	VA     uint64 // first byte of the buffer, as Region.Addr gave it
	RKey   uint32
	Len    uint64 // bytes of the message
	Extra  []byte // software header, Caps.MaxHdr bytes at most; lent during Sink.Rndv
}

// Region is registered memory.
type Region interface {
	Addr() uint64
	RKey() uint32
	// Dereg withdraws it: peers' reads fail from then on, and without Caps.Revoke end the link to
	// this rank.
	Dereg() error
}

// Transport moves messages between ranks. Messages to one peer (eager, rendezvous requests,
// control, Fin) arrive in the order of the calls. Calls for a peer that is lost return an error
// that is not ErrAgain.
type Transport interface {
	Caps() Caps
	// Address is what the peer ranks pass to Connect: device address, queue pairs for every rank,
	// mode, version, eager limit. Its encoding is versioned.
	Address() []byte
	// Connect makes rank peer reachable. addr is its Transport.Address; a peer of another version,
	// mode or eager limit is refused with an error that names the difference. It does not wait for
	// the peer. Called once per rank, own included.
	Connect(peer int, addr []byte) error

	// Wire names what carries the messages to a connected peer, as the device calls it; empty where
	// the device has only one way. It may change once, before the first message goes, and stays
	// when the peer is lost.
	Wire(peer int) string

	// SendEager sends a tagged message; payload is copied before it returns.
	SendEager(peer int, appCtx uint32, tag uint64, payload []byte) error
	// SendRndv sends a rendezvous request. The buffer stays registered until Sink.Fin, or until the
	// engine withdraws it.
	SendRndv(peer int, h *RndvHdr) error
	// SendFin tells the sender of rendezvous appCtx that its buffer was read.
	SendFin(peer int, appCtx uint32) error
	// SendCtrl sends an untagged message of the engine's own, ordered with the others; msg is
	// copied.
	SendCtrl(peer int, msg []byte) error

	// Register makes buf readable for a peer. The transport holds the slice until Dereg. ErrAgain:
	// this peer has its share of what the device can register, or the device has no memory; others
	// may still get some.
	Register(peer int, buf []byte) (Region, error)
	// Read copies len(dst) bytes from a peer's registered memory; Sink.ReadDone(id) reports the
	// end. The transport has dst until then.
	Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error

	// Abandon takes the destination of the reads with this id back: nothing is written to it once
	// Abandon has returned. Sink.ReadDone is called for each of them all the same. Only with
	// Caps.Revoke.
	Abandon(peer int, id uint64)

	// Disconnect ends the connection to a rank that the engine has given up, for err: reads under
	// way end with Sink.ReadDone, and the rank sees the end of the connection if it can be told.
	// Sink.PeerLost may follow.
	Disconnect(peer int, err error)

	// Grant stores total into this rank's cell at the peer (a cumulative count of credit bytes); a
	// later Grant replaces an earlier one, and only the newest need arrive. There is no
	// back-pressure: one that finds no room is kept by the transport until there is some, and
	// Drained waits for it. An error means that the peer is lost, as Sink.PeerLost tells, or was
	// never connected. Nobody is woken. Granted reads the cell that peer writes for us.
	Grant(peer int, total uint64) error
	Granted(peer int) uint64

	// Poll makes progress and calls the Sink for what happened. It returns how many events there
	// were; zero means idle.
	Poll() (int, error)
	// Drained reports that everything posted so far has left this process's hands.
	Drained() bool

	// Arm asks for Wait to end at the next event; Disarm takes that back. Protocol: Arm, Poll once
	// more, Wait only if that found nothing. Wait and Wake may be called by any goroutine, Wait by
	// one at a time, without the owner's lock.
	Arm() error
	Disarm()
	Wait() error
	Wake()

	// TagList is the device's tag list, or nil where matching is in software.
	TagList() TagList

	// Close ends all connections; the Sink is not called any more.
	Close() error
}

// Sink is what a transport calls from inside Poll; the engine implements it. Slices are lent for
// the call. A Sink may call the transport's posting methods, not Poll.
type Sink interface {
	// Eager reports a tagged message that the device did not match.
	Eager(src int, appCtx uint32, tag uint64, payload []byte)
	// Rndv reports a rendezvous request that the device did not match.
	Rndv(src int, h *RndvHdr)
	Fin(src int, appCtx uint32)
	Ctrl(src int, msg []byte)
	ReadDone(id uint64, err error)
	// PeerLost reports, once, that a peer cannot be reached any more. Reads under way to it end
	// with ReadDone first.
	PeerLost(peer int, err error)
	TagSink
}

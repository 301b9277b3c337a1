package verbs

import (
	"io"
	"sync"
)

// Device is an opened device. Destroy an object before the objects that it was created from;
// destroying one that is still in use fails with EBUSY, as with libibverbs.
type Device interface {
	// Name is the device's name as info prints it, for example "shm" or "mlx5_0".
	Name() string
	// Attr returns the device's limits and capabilities; they do not change while it is open.
	Attr() DeviceAttr
	// Address is what a peer's AddressVector takes to reach this device. The caller may keep it but
	// not change it.
	Address() []byte

	AllocPD() (PD, error)
	CreateCompChannel() (CompChannel, error)
	CreateCQ(attr CQInitAttr) (CQ, error)

	// Reaches reports over which wire this device reaches the one at addr, as far as the two
	// addresses tell; it makes nothing, and asks nobody. Its own address it reaches. EINVAL: addr
	// is no address; EHOSTUNREACH: no wire of the two devices fits.
	Reaches(addr []byte) (wire string, err error)

	// Tell sends msg, 1 to MaxTell bytes, to the device at to; both are copied. What is told on a
	// line (Told) arrives once and in order, unless the line ends, which PollTold reports: then the
	// last messages may be lost. A Tell after the end begins another line, even if the end was not
	// polled yet.
	//
	// After an error nothing was told. ENOBUFS: too much waits to be sent to that device, tell
	// again after a poll. EINVAL: the length, to is no address, or it is the device's own.
	// EHOSTUNREACH: see Reaches. EBADF: the device is closed.
	Tell(to, msg []byte) error
	// PollTold returns the oldest message that was told to this device and not polled yet, or,
	// after the messages of a line, its end, once. false: there is none. It does not block, and
	// makes no progress: messages come during CQ.Drain. Messages that were not polled when the
	// device is closed are lost.
	//
	// At most 16 messages of one device wait to be polled; one more breaks the protocol, and ends
	// the line. So the two programs agree on how many they tell without an answer.
	PollTold() (Told, bool)

	// PollAsync returns the oldest asynchronous event (ibv_get_async_event without blocking).
	// Events need no acknowledgement.
	PollAsync() (AsyncEvent, bool)

	// Close frees the device. It fails with EBUSY while the device has objects, but it ends a
	// running CompChannel.Wait.
	Close() error
}

// Sharer is a Device with memory that stays registered while the program uses it for many
// transfers. Not every device is one.
type Sharer interface {
	// Share registers buf until Close of the result, whatever protection domain uses it: buf must
	// not be moved or freed before. Within it further regions are registered as anywhere; but those
	// of a NIC have one registration, so that Dereg of one takes no right from peers, and ends no
	// transfer. fd is a memfd of exactly these pages, whose size is sealed, or -1; the device does
	// not close it.
	//
	// It fails with EEXIST where part of buf is shared already, and Close with EBUSY while regions
	// lie in it. Calls belong to the device's owner.
	Share(buf []byte, fd int) (io.Closer, error)
}

// Identifier is a Device whose addresses say who they are of, beside the way there.
type Identifier interface {
	// Identity returns what tells the device at addr from all others, which may be a part of addr:
	// if it is equal, two addresses are of one device, or one of them is false. Of what is no
	// address it returns all.
	Identity(addr []byte) []byte
}

// Async is a Device that needs to be told to work by itself while its program computes. A NIC does
// so anyway, and is none.
type Async interface {
	// Async begins that, once, before the first CompChannel.Wait. From then on every call of the
	// device, or of what was made from it, is made with owner held; CompChannel.Wait,
	// CompChannel.Wake and Close are the exceptions.
	Async(owner sync.Locker) error
	// PollingEnded tells that the program stops polling for now, and that something is under way
	// that is worth a wake-up. The device may make progress in the call, but calls no Handler, and
	// no Handler calls it.
	PollingEnded()
}

// PD is a protection domain: memory regions, shared receive queues and queue pairs work together
// only within one.
type PD interface {
	// RegMR registers buf for work requests (lkey) and, as access allows, for peers (rkey). buf
	// must not be moved or freed before Dereg: the region holds the slice and, for Go memory, pins
	// it. A zero-length buf is EINVAL. ENOMEM: the device has no more regions, or the memory that
	// may be locked (RLIMIT_MEMLOCK) does not suffice, and the error says the limit; another
	// region's Dereg may help.
	RegMR(buf []byte, access AccessFlags) (MR, error)
	// CreateSRQ creates a shared receive queue. attr is updated to the granted limits (TMO 1.2).
	CreateSRQ(attr *SRQInitAttr) (SRQ, error)
	// CreateQP creates a queue pair in state RESET. attr.Cap and attr.ReadFaults are updated to
	// what is granted.
	CreateQP(attr *QPInitAttr) (QP, error)
	// Dealloc fails with EBUSY while the PD has objects.
	Dealloc() error
}

// MR is a registered memory region.
type MR interface {
	LKey() uint32
	RKey() uint32
	// Addr is the address of the region's first byte in RDMA work requests of peers.
	Addr() uint64
	Len() int
	// Dereg deregisters the region. A peer that uses its rkey afterwards gets REM_ACCESS_ERR, also
	// one in the middle of a transfer, or RETRY_EXC_ERR where this answer is lost, which comes
	// once. The memory is not accessed after Dereg has returned nil, except that a peer which is
	// copying from it may finish a chunk, whose data it then discards. It fails with EBUSY where
	// the region is not quiet, see QuietMR. Of a queue pair that was destroyed, or reset, with
	// EBUSY the memory may be written to later, too.
	Dereg() error
}

// QuietMR is an MR of a device that may have a peer's processor copy to it, for an RDMA READ.
type QuietMR interface {
	MR
	// Quiet has peers begin no more copies to the region, and reports whether none is in the middle
	// of one. A peer that is stopped may stay there for any time. READs go on, by this process.
	Quiet() bool
	// Kept reports whether a peer may write to the memory for ever, as a queue pair was destroyed,
	// or reset, with EBUSY. It says so until Dereg.
	Kept() bool
}

// CompChannel is a completion event channel.
type CompChannel interface {
	// Wait blocks until an armed CQ of this channel may have a completion, until something comes
	// for PollTold or PollAsync while one is armed, until Wake, or until Close (then it returns an
	// error). Spurious ends are legal. Any goroutine may call it, one at a time, concurrently with
	// the device's other calls.
	Wait() error
	// Wake ends the current Wait or, if there is none, the next one. Any goroutine may call it.
	Wake()
	Close() error
}

// Handler is given completions by CQ.Drain, one at a time.
type Handler interface {
	// Complete handles a completion. wc and wc.Data are valid during the call. It may post to queue
	// pairs and SRQs, move queue pairs to ERR, and tell, but neither poll a CQ, nor arm one, nor
	// reset or destroy anything.
	//
	// again is for receives of an SRQ whose wc.Data is set, since these have not used their buffer:
	// true posts the receive again, as it was.
	Complete(wc *WC) (again bool)
}

// CQ is a completion queue.
type CQ interface {
	// Drain makes progress and hands completions to h, oldest first, most of them at most; it
	// returns how many. A device may hand a completion over as soon as it has come, before it looks
	// for the next. An error means that the CQ is unusable (overrun).
	Drain(h Handler, most int) (int, error)
	// Stop, called by the handler, ends the Drain under way with the completion that it handles:
	// what has come behind it is left to the next. Else it does nothing.
	Stop()
	// Arm requests one event on the channel at the next completion (ibv_req_notify_cq). To lose no
	// event: Arm, Drain and PollTold once more, and Wait only if these found nothing.
	Arm(solicitedOnly bool) error
	// Disarm cancels Arm, so that peers need not signal a poller. An event may still come.
	Disarm()
	// Destroy fails with EBUSY while queue pairs or SRQs use the CQ.
	Destroy() error
}

// SRQ is a shared receive queue, with tag matching if it was created as SRQTypeTM.
type SRQ interface {
	Num() uint32
	// PostSRQRecv posts a chain of receives. On failure it returns the first failing request; those
	// before it are posted (TMO 1.4). The device owns a buffer until its completion was polled.
	PostSRQRecv(wr *RecvWR) (bad *RecvWR, err error)
	// PostSRQOps posts a chain of list operations (TMO 3). On failure it returns the first failing
	// request; those before it are posted. On a device without tag matching it fails with
	// EOPNOTSUPP and a nil bad (TMO 3.3).
	PostSRQOps(wr *OpsWR) (bad *OpsWR, err error)
	// Modify arms the limit event (SRQLimit) or resizes the queue (SRQMaxWR), TMO 8.4.
	Modify(attr SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	// Destroy fails with EBUSY while a QP is attached.
	Destroy() error
}

// QP is a queue pair.
type QP interface {
	Num() uint32
	// State is the state that was last set by Modify: a device may not know of an error before a
	// completion, or an event, tells of it. A program that asks for the state of a queue pair to
	// find errors misses some.
	State() QPState
	// Modify changes the attributes in mask. It enforces the transitions and the required and
	// optional attributes of ibv_modify_qp(3) (TMO 8.1); on failure it changes nothing.
	Modify(attr *QPAttr, mask QPAttrMask) error
	// Query returns the attributes, and those of creation. It may be a system call, and fail.
	Query() (QPAttr, QPInitAttr, error)
	// PostSend posts a chain of work requests. On failure it returns the first failing one; those
	// before it are posted. The device owns the buffers until completion, except with SendInline.
	// In ERR a request is accepted, and completes with WR_FLUSH_ERR behind those before it.
	PostSend(wr *SendWR) (bad *SendWR, err error)
	// PostRecv posts receives to the QP's own queue; EINVAL if the QP has an SRQ.
	PostRecv(wr *RecvWR) (bad *RecvWR, err error)
	Destroy() error
}

// DeviceAttr are a device's limits.
type DeviceAttr struct {
	MaxQP, MaxQPWR, MaxSGE   int
	MaxCQ, MaxCQE            int
	MaxSRQ, MaxSRQWR, SRQSGE int
	MaxMR                    int
	MaxMsgSize               uint64 // bytes of one message
	MaxInline                int    // largest SendInline payload that CreateQP grants, bytes; a NIC's is found by trying
	MaxQPRdAtom              int    // RDMA reads outstanding at a QP as their target
	MaxQPInitRdAtom          int    // RDMA reads outstanding at a QP as their initiator
	MaxMTU                   MTU
	TM                       TMCaps
	NoTM                     string // without tag matching: why, where the device knows
	Suits                    Suits
	ReadFaults               bool     // QPInitAttr.ReadFaults is supported
	Wires                    []string // software device: its possible wires ("shm", "tcp", "loop")
}

// Suits are sizes that suit a device, for programs that ask for none; 0: the same as for any.
type Suits struct {
	Receives int // of an SRQ of all peers
	Sends    int // outstanding at a queue pair
}

// TMCaps are the tag-matching capabilities (struct ibv_tm_caps, TMO 1.1). Test Flags & TMCapRC,
// never MaxNumTags.
type TMCaps struct {
	MaxRndvHdrSize uint32
	MaxNumTags     uint32
	Flags          TMCapFlags
	MaxOps         uint32
	MaxSGE         uint32
}

// TMCapFlags is the flags word of TMCaps.
type TMCapFlags uint32

// TMCapRC: the device matches tags on RC, with rendezvous offload (IBV_TM_CAP_RC).
const TMCapRC TMCapFlags = 1 << 0

// CQInitAttr describes a CQ to create.
type CQInitAttr struct {
	CQE     int // smallest capacity, in completions
	Channel CompChannel
	WCFlags WCExFlags // WCExWithTMInfo for the CQ of a tag-matching SRQ
}

// WCExFlags are extended completion fields (ibv_create_cq_ex).
type WCExFlags uint64

// WCExWithTMInfo requests tag information in completions (IBV_WC_EX_WITH_TM_INFO).
const WCExWithTMInfo WCExFlags = 1 << 10

// SRQType is the kind of a shared receive queue.
type SRQType uint32

const (
	SRQTypeBasic SRQType = 0
	SRQTypeXRC   SRQType = 1
	SRQTypeTM    SRQType = 2
)

// SRQInitMask says which fields of SRQInitAttr are set.
type SRQInitMask uint32

const (
	SRQInitType SRQInitMask = 1 << 0
	SRQInitPD   SRQInitMask = 1 << 1
	SRQInitXRCD SRQInitMask = 1 << 2
	SRQInitCQ   SRQInitMask = 1 << 3
	SRQInitTM   SRQInitMask = 1 << 4
)

// SRQInitAttr describes an SRQ to create. SRQInitPD may be omitted: the PD is the one whose
// CreateSRQ is called.
type SRQInitAttr struct {
	Mask SRQInitMask
	Type SRQType
	CQ   CQ // tag matching: the CQ of its completions
	SRQAttr
	TM TMCap
}

// TMCap are the requested tag-list sizes (struct ibv_tm_cap).
type TMCap struct {
	MaxNumTags uint32
	MaxOps     uint32
}

// SRQAttr are the changeable attributes of an SRQ.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32 // raise the limit event when fewer receives are posted; 0 = off
}

// SRQAttrMask selects fields of SRQAttr.
type SRQAttrMask uint32

const (
	SRQMaxWR SRQAttrMask = 1 << 0
	SRQLimit SRQAttrMask = 1 << 1
)

// AccessFlags are the rights of peers to memory, or through a QP (enum ibv_access_flags).
type AccessFlags uint32

const (
	AccessLocalWrite   AccessFlags = 1 << 0
	AccessRemoteWrite  AccessFlags = 1 << 1
	AccessRemoteRead   AccessFlags = 1 << 2
	AccessRemoteAtomic AccessFlags = 1 << 3
)

// AsyncEventType is enum ibv_event_type.
type AsyncEventType uint32

const (
	EventCQErr            AsyncEventType = 0
	EventQPFatal          AsyncEventType = 1 // it has failed; needed where no completion tells, as of the device's own READ or FIN
	EventQPReqErr         AsyncEventType = 2
	EventQPAccessErr      AsyncEventType = 3
	EventCommEst          AsyncEventType = 4
	EventSQDrained        AsyncEventType = 5
	EventDeviceFatal      AsyncEventType = 8 // the device works no more: close it
	EventPortActive       AsyncEventType = 9
	EventPortErr          AsyncEventType = 10 // the port is down; queue pairs fail by themselves if it stays so
	EventSRQErr           AsyncEventType = 14
	EventSRQLimitReached  AsyncEventType = 15
	EventQPLastWQEReached AsyncEventType = 16
)

// AsyncEvent is an asynchronous event.
type AsyncEvent struct {
	Type AsyncEventType
	QP   uint32 // number of the QP or SRQ concerned; 0 with events of the device and its port
	Err  error  // the cause where the device knows one, e.g. that the peer's process is gone; else nil
}

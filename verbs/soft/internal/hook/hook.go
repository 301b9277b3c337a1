package hook

import "github.com/tagmatch/tagmatch/verbs/soft/internal/wire"

var (
	ID            func(dev any) wire.DeviceID
	Step          func(dev any)
	Idle          func(dev any) bool
	WithTM        func(cfg any, tm TM) any // of a soft.Config, as the next
	WithLimits    func(cfg any, l Limits) any
	WithoutDirect func(cfg any) any
	Refusals      func(dev any) uint64
	CutShort      func(dev any) uint64
	Lines         func(dev any) int
	QueuePairs    func(dev any) int
	WithHabits    func(cfg any, h Habits) any // of a soft.Config
	Early         func(dev any) uint64
)

// Wire, where a test has set it, opens the wires of all devices of the process, by open. It does
// not change once a device was opened.
var Wire func(env wire.Env, open func(wire.Env) (wire.Wire, error)) (wire.Wire, error)

// Everywhere, where a test has set it, are the habits of all devices of the process that are given
// none. It does not change once a device was opened.
var Everywhere *Habits

// Limits are lower limits of a device than its own, which NICs have. 0: the device's own.
type Limits struct {
	MaxCQE   int // see verbs.DeviceAttr
	RegBytes int // of all registered memory, counted once for each region: beyond it RegMR fails with ENOMEM
}

// TM configures tag matching: the limits of soft.TMConfig, behaviour that the specification leaves
// open, and faults (TMO 9). The zero value is the recommended behaviour.
type TM struct {
	MaxNumTags, MaxOps, MTU int // see soft.TMConfig

	QuirkSyncReq   bool // SYNC_REQ as the mlx5 driver computes it (TMO 4.6); else: H and S differ
	RecvUnexpected bool // unexpected messages complete as RECV, as documented, not as TM_RECV (TMO 4.2)
	LiveGoDormant  bool // an unexpected message makes all entries dormant, not only later ones
	RNRWhenEmpty   bool // a message that matches an entry needs a posted untagged receive too
	TwoIncomplete  bool // RNDV_INCOMPLETE has MATCH only, and DATA_VALID follows; else one completion has both

	// Strict exposes a program that breaks V11, V13, V14 or V19 (TMO 7.1): by EINVAL where a post
	// shows it, else by EventSRQErr and, for the receive concerned, GENERAL_ERR.
	Strict bool

	InitialCount uint16 // H and S at creation: near 65535 to see them wrap
	Seed         uint64 // of the delays
	DelayOps     int    // list operations take effect up to so many polls late
	DelayData    int    // DATA_VALID after MATCH comes up to so many polls late
	DelayFIN     int    // FINs are sent up to so many polls late
	DropSync     int    // N: the count of every Nth SYNC has no effect; 0: none
	KillQPAt     int    // N: the Nth message to the SRQ moves its QP to ERR and is not received; 0: none
	KillQPPart   int    // N: so does the Nth packet to the SRQ that is not a message's first; 0: none
	RNREvery     int    // N: every Nth message is refused once as if no receive were posted; 0: none
}

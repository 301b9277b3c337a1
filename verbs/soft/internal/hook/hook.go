package hook

import "github.com/tagmatch/tagmatch/verbs/soft/internal/wire"

var (
	ID       func(dev any) wire.DeviceID
	Step     func(dev any)
	Idle     func(dev any) bool
	WithTM   func(cfg any, tm TM) any // of a soft.Config
	Refusals func(dev any) uint64
	CutShort func(dev any) uint64
)

// TM is how tag matching works: the limits of soft.TMConfig, behaviour that the sources leave open,
// and faults (TMO 9). The zero value is the recommended device.
type TM struct {
	MaxNumTags, MaxOps, MTU int // see soft.TMConfig

	QuirkSyncReq   bool // SYNC_REQ as the mlx5 driver computes it (TMO 4.6); else: the counters differ
	RecvUnexpected bool // unexpected messages complete as RECV, as documented, not as TM_RECV, as by mlx5 (TMO 4.2)
	LiveGoDormant  bool // an unexpected message makes all entries dormant, not only later ones
	RNRWhenEmpty   bool // expected messages need a posted untagged receive too
	TwoIncomplete  bool // RNDV_INCOMPLETE comes with MATCH, a successful DATA_VALID after it; else one completion

	// Strict exposes a host that breaks V11, V13, V14 or V19 (TMO 7.1): by EINVAL where a post
	// shows it, else by EventSRQErr and, for the receive concerned, GENERAL_ERR.
	Strict bool

	InitialCount uint16 // H and S at creation: near 65535 to see them wrap
	Seed         uint64 // of the delays
	DelayOps     int    // list operations take effect up to so many polls late
	DelayData    int    // DATA_VALID after MATCH comes up to so many polls late
	DelayFIN     int    // FINs leave up to so many polls late
	DropSync     int    // every so-manieth bare SYNC has no effect; 0: none
	KillQPAt     int    // the so-manieth message to the SRQ moves its QP to ERR instead of being received; 0: none
	KillQPPart   int    // the so-manieth packet to the SRQ that is not the first of its message does so; 0: none
	RNREvery     int    // every so-manieth message finds the receiver not ready, once; 0: none
}

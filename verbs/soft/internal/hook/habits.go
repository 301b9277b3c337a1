package hook

import "time"

// Habits are what network adapters do and a software device does not, within the contract of
// package verbs. Each field is one by itself; the zero value has none.
type Habits struct {
	NoReadFaults bool // DeviceAttr.ReadFaults is false
	StaleState   bool // QP.State is what was last set
	// NoEvents: a queue pair that fails has no event, except by the end of its link, and where a
	// READ or FIN of the device's own has failed.
	NoEvents bool

	// Silence: a queue pair that is destroyed, is reset or fails tells its peer nothing. What the
	// peer requests from it ends with RETRY_EXC_ERR, after so many polls.
	Silence int
	// LateFlush: what a queue pair has under way is flushed so many polls after it has failed.
	LateFlush int
	// Early: a packet for a queue pair that is not in RTR yet comes again after a second of the
	// virtual clock. softtest.Early counts these queue pairs.
	Early bool
	// Slow is how long, by the virtual clock, each object takes to be made, and each Modify.
	Slow time.Duration

	NoLending bool // no completion lends its payload (WC.Data)
	MaxInline int  // bytes, as soft.Config.MaxInline; 0: no further limit
	Limits

	// Tags: a completion with MATCH names no queue pair. Where receiving a matched message fails,
	// the error names an untagged buffer, if one is posted, and takes it. Of the receives that were
	// matched and whose queue pair has failed, every second one ends with RNDV_INCOMPLETE and both
	// flags, and the others do not complete at all: the device owes them until the queue pair is
	// reset.
	Tags bool
}

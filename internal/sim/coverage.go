package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Event is a case that runs must reach: a simulation that never does proves nothing about it.
type Event int

// The events.
const (
	Messages Event = iota // received
	Sent
	Matched
	Unexpected
	ForcedDels
	DelsWon
	DelsLost
	Promotions
	Chains
	ListFull
	Overlaps
	Rests
	Syncs
	Incomplete
	Wraps
	RNR
	RNRAtRandom
	Truncated
	CanceledRecvs
	CanceledSends
	HeldUp
	Released
	Queued
	LostSends
	LostRecvs
	KilledQPs
	CutShort
	KilledRanks
	BrokenLinks
	ClosedMid
	Calls
	Slept
	ExpiredRecvs
	ExpiredSends
	Abandoned
	Revoked
	Withdrawn
	Returned
	Flushes
	Aborts
	Aborted
	ClosedCalls
	HeldLosses
	RestsOver
	IndexUsed
	Batches
	PartsSent
	PartsRead
	Pieces
	FullSends
	Probes
	Probed
	Looked
	Taken
	TakenLate
	Discarded
	GroupRecvs
	GroupProbed
	GroupLost
	AckedElsewhere
	GroupSpared
	Retires
	RetiredRecvs
	LateMessages
	Reused
	FreeBesideLoss
	MetByOne
	MetByBoth
	Refused
	EndTold
	EndedMidway
	LostBeforeMet
	events
)

var eventNames = [events]string{
	Messages:       "messages received",
	Sent:           "messages sent",
	Matched:        "matched by a device",
	Unexpected:     "found unexpected by a device with a list",
	ForcedDels:     "dormant receives taken out by a forced DEL",
	DelsWon:        "receives that a DEL has removed from the device",
	DelsLost:       "DELs that the device was faster than",
	Promotions:     "receives promoted into the list",
	Chains:         "batches of several sends posted as one chain",
	ListFull:       "receives that found the list full",
	Overlaps:       "receives kept by the overlap rule",
	Rests:          "rests after thrashing",
	Syncs:          "bare SYNCs",
	Incomplete:     "matched rendezvous left to software",
	Wraps:          "counters that wrapped",
	RNR:            "refusals for want of a buffer",
	RNRAtRandom:    "refusals for want of a buffer, or at random",
	Truncated:      "truncated messages",
	CanceledRecvs:  "cancelled receives",
	CanceledSends:  "cancelled sends",
	HeldUp:         "sends held up for credit",
	Released:       "messages beyond credit, for a receive",
	Queued:         "sends queued for want of room",
	LostSends:      "sends that a loss ended",
	LostRecvs:      "receives that a loss ended",
	KilledQPs:      "connections ended by a failing queue pair",
	CutShort:       "matched messages that never came whole",
	KilledRanks:    "killed ranks",
	BrokenLinks:    "broken links",
	ClosedMid:      "worlds closed midway",
	Calls:          "blocking calls",
	Slept:          "blocking calls that had to wait",
	ExpiredRecvs:   "blocking receives that their context ended",
	ExpiredSends:   "blocking sends that their context ended",
	Abandoned:      "reads under way that a receive has abandoned",
	Revoked:        "sends revoked without their receiver's answer",
	Withdrawn:      "matched probes whose message was withdrawn before it was received",
	Returned:       "receives that went back to their place, without their message",
	Flushes:        "flushes",
	Aborts:         "aborts",
	Aborted:        "operations that an abort ended",
	ClosedCalls:    "blocking calls that a close ended",
	HeldLosses:     "matched receives that ended between the loss of their sender and its report",
	RestsOver:      "rests that have ended",
	IndexUsed:      "unexpected messages found by an index",
	Batches:        "short sends posted as one batch",
	PartsSent:      "messages sent as several parts",
	PartsRead:      "messages received into several parts",
	Pieces:         "reads in several pieces",
	FullSends:      "sends refused for the limit of what may be queued",
	Probes:         "blocking probes that found a message at once, or nothing",
	Probed:         "blocking probes that had to wait and found a message",
	Looked:         "messages found by probes that do not block",
	Taken:          "messages taken by matched probes that do not block",
	TakenLate:      "messages taken by matched probes that had to wait",
	Discarded:      "messages taken and discarded",
	GroupRecvs:     "messages received from any rank of a Comm",
	GroupProbed:    "blocking probes for any rank of a Comm that had to wait and found a message",
	GroupLost:      "receives from any rank of a Comm that a loss ended",
	AckedElsewhere: "receives that a loss ended which their rank had acknowledged in another Comm",
	Retires:        "Comms closed by a rank",
	RetiredRecvs:   "receives that the close of their Comm ended",
	LateMessages:   "messages that came to a rank that had closed their Comm",
	Reused:         "contexts used again by a rank",
	FreeBesideLoss: "contexts that became free at a rank although one was lost",
	MetByOne:       "connections that one end has begun",
	MetByBoth:      "connections that both ends have begun",
	Refused:        "connections refused, as the other end had given up the rank",
	EndTold:        "losses that the other end has told of",
	EndedMidway:    "connections that ended while they were made",
	LostBeforeMet:  "losses of ranks that nothing had begun with",
	GroupSpared:    "receives from any rank of a Comm that wait, beside the loss of another rank",
}

func (e Event) String() string { return eventNames[e] }

// notOfNICs are the events for which a read must be able to fail alone.
var notOfNICs = []Event{Abandoned, Revoked}

// Coverage counts events.
type Coverage [events]uint64

// Add adds the counts of other runs.
func (c *Coverage) Add(o *Coverage) {
	for i := range o {
		c[i] += o[i]
	}
}

// Missing lists the events that never happened, and might have; nic is Params.NIC.
func (c *Coverage) Missing(nic bool) (list []Event) {
	for i, n := range c {
		if n == 0 && !(nic && slices.Contains(notOfNICs, Event(i))) {
			list = append(list, Event(i))
		}
	}
	return list
}

// String is a table.
func (c *Coverage) String() string {
	var b strings.Builder
	for i, n := range c {
		fmt.Fprintf(&b, "%12d  %s\n", n, Event(i))
	}
	return b.String()
}

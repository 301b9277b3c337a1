package progress

import "github.com/tagmatch/tagmatch/transport"

// Matching by a device (docs/tag-matching-offload.md) is not used yet; what it needs has its place:
//
//   - Engine.posted is the shadow list, in posting order, and Posted.Overlapping answers the overlap rule (6.3): a receive may
//     be offered only if no earlier, software-kept receive overlaps it. The offer belongs into postLocked, after the search
//     of the unexpected messages, which already happens under the same lock.
//   - Engine.handled is C (5.1): sink.Eager and sink.Rndv count it last, when the message is delivered or visible.
//   - cancelLocked decides by Op.state; a receive in the device gets a state of its own and ends through Deleted (6.6).
//   - sink.Eager and sink.Rndv must Drop a matched receive that is in the device before they count.
//
// Until then nothing is ever added to a device's list, so that every call below is a fault of the transport.

func (s *sink) Matched(id uint64, src int, appCtx uint32, tag uint64) { s.unoffered("match", id) }
func (s *sink) Delivered(id uint64, n uint64, err error)              { s.unoffered("delivery", id) }
func (s *sink) Deleted(id uint64, ok bool)                            { s.unoffered("deletion", id) }

func (s *sink) unoffered(what string, id uint64) {
	e := (*Engine)(s)
	e.breakLocked(protocolError("device reports the %s of receive %d, which was never offered to it", what, id))
}

func (s *sink) Incomplete(id uint64, _ *transport.RndvHdr) { s.unoffered("rendezvous", id) }

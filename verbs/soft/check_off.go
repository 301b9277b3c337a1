//go:build !invariants

package soft

import (
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/taglist"
)

// checks are for builds with -tags invariants. This is what is left of them in others: nothing.
// Calls that are made for each message guard what they defer by invariant.Enabled, since that is
// not free.
type checks struct{}

func newChecks() *checks { return nil }

func (*checks) isStrict() bool    { return false }
func (*checks) handing() func()   { return func() {} }
func (*checks) closing() func()   { return func() {} }
func (*checks) pushBegins(uint64) {}
func (*checks) pushEnds(uint64)   {}

func (*Device) enter(string) (leave func())                  { return func() {} }
func (*Device) writes([]sge, []byte)                         {}
func (*Device) peerWrites(uint32, []byte, verbs.AccessFlags) {}

func (*requester) checkPosted([]sge)                       {}
func (*requester) checkEnded(uint32, bool, verbs.WCStatus) {}
func (*requester) checkReclaimed(uint32)                   {}
func (*requester) checkCursors()                           {}

func (*queuePair) checkReset()    {}
func (*queuePair) checkAllEnded() {}

func (*recvQueue) checkPosted(uint64, []sge) {}
func (*recvQueue) checkDone(uint64)          {}
func (*recvQueue) checkCleared()             {}

func (*compQueue) checkPushed(*verbs.WC, frees) {}

func (*tagQueue) startChecks()                             {}
func (*tagQueue) checkDestroyed()                          {}
func (*tagQueue) checkPosted(*taglist.Op)                  {}
func (*tagQueue) checkExecuted(*taglist.Op, *verbs.WC)     {}
func (*tagQueue) checkMatched(*queuePair, uint32)          {}
func (*tagQueue) checkMade(*verbs.WC, uint32)              {}
func (*tagQueue) checkUnexpected(*queuePair) (done func()) { return func() {} }

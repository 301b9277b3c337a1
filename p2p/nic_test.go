package p2p_test

import "github.com/tagmatch/tagmatch/internal/testlevel"

// notOnNICs are the tests that cannot hold where all devices behave as network adapters do, see
// softtest.NICs.
var notOnNICs = func() testlevel.LeftOut {
	const (
		revoke  = "a call whose context ends waits for the other end where memory cannot be deregistered under a read, see Caps.Revoke"
		faults  = "a read of memory that is gone ends the connection, see verbs.DeviceAttr.ReadFaults"
		unnamed = "a completion with MATCH names no queue pair: who has sent in the name of another rank is not known"
		limit   = "its message is longer than what can be registered, so that its Send fails"
	)
	return testlevel.LeftOut{
		"TestDeadlineAgainstIdleRank":    revoke,
		"TestKeepsNothingOfSilentSender": revoke,
		"TestBufferOfSendIsGone":         faults,
		"TestBufferOfReceiveIsGone":      faults,
		"TestCommNames":                  unnamed,
		"TestPortedMPICHLargeMessage":    limit,
	}
}()

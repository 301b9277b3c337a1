package jobtest

import "github.com/tagmatch/tagmatch/internal/testlevel"

// notOnNICs are the tests that cannot hold where all devices behave as network adapters do, see
// softtest.NICs.
var notOnNICs = func() testlevel.LeftOut {
	const faults = "a read of memory that is gone ends the connection, see verbs.DeviceAttr.ReadFaults"
	return testlevel.LeftOut{
		"TestSendBufferIsGone":    faults,
		"TestReceiveBufferIsGone": faults,
		"TestHungFile":            faults,
		"TestStopped":             "a Send whose context ends waits for its receiver where memory cannot be deregistered under a read, see Caps.Revoke",
	}
}()

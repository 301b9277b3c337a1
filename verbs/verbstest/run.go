package verbstest

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// Run runs the suite. open must open n devices that reach each other and see to their closing when the test ends; a test
// may have closed one already.
func Run(t *testing.T, open func(t *testing.T, n int) []verbs.Device) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
	RunTags(t, open, TagOptions{})
}

type testCase struct {
	name string
	run  func(t *testing.T, open Opener)
}

var cases = []testCase{
	{"Attributes", testAttributes},
	{"Transitions", testTransitions},
	{"PostStates", testPostStates},
	{"DestroyOrder", testDestroyOrder},
	{"TagMatchingUnsupported", testTagMatchingUnsupported},
	{"MRRules", testMRRules},
	{"SendRecv", testSendRecv},
	{"SendSelf", testSendSelf},
	{"SendImm", testSendImm},
	{"SendInv", testSendInv},
	{"ZeroLength", testZeroLength},
	{"MultiPacket", testMultiPacket},
	{"Gather", testGather},
	{"Inline", testInline},
	{"Opcodes", testOpcodes},
	{"ChainFails", testChainFails},
	{"SelectiveSignalling", testSelectiveSignalling},
	{"UnsignaledReclaim", testUnsignaledReclaim},
	{"Backlog", testBacklog},
	{"SmallPoll", testSmallPoll},
	{"CQOverrun", testCQOverrun},
	{"SRQPost", testSRQPost},
	{"SRQLimit", testSRQLimit},
	{"SRQOrder", testSRQOrder},
	{"RNRForever", testRNRForever},
	{"RNRFinite", testRNRFinite},
	{"TooLong", testTooLong},
	{"TooLongMultiPacket", testTooLongMultiPacket},
	{"BadLKey", testBadLKey},
	{"BadRecvLKey", testBadRecvLKey},
	{"Flush", testFlush},
	{"FlushOnlyOwn", testFlushOnlyOwn},
	{"Reset", testReset},
	{"Write", testWrite},
	{"WriteImm", testWriteImm},
	{"ReadSizes", testReadSizes},
	{"ReadOrder", testReadOrder},
	{"ReadAfterWrite", testReadAfterWrite},
	{"ReadNotBlocking", testReadNotBlocking},
	{"ReadWithdrawn", testReadWithdrawn},
	{"ReadFaults", testReadFaults},
	{"ReadIntoWithdrawn", testReadIntoWithdrawn},
	{"RemoteAccess", testRemoteAccess},
	{"Fence", testFence},
	{"Atomics", testAtomics},
	{"ArmWait", testArmWait},
	{"ChannelClose", testChannelClose},
	{"PeerDestroysQP", testPeerDestroysQP},
	{"PeerCloses", testPeerCloses},
}

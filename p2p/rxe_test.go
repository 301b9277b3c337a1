//go:build rxe

package p2p_test

import (
	"testing"

	_ "github.com/tagmatch/tagmatch/verbs/ibverbs"
)

// TestRXE plays tests on the device rdma, which test/vm has: the kernel's software RDMA. It takes
// up to 30 times as long as here, so that these are the short ones.
func TestRXE(t *testing.T) {
	onRXE = true
	defer func() { onRXE = false }()
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"Ring", TestRing}, {"Truncated", TestTruncated}, {"Contexts", TestContexts},
		{"SendrecvRing", TestSendrecvRing}, {"Dup", TestDupAndClose}, {"Persistent", TestPersistent}, {"Vec", TestVec},
		{"Regions", TestRegions}, {"Probes", TestProbes}, {"Many", TestMany}, {"Queue", TestQueueAll}, {"CancelMatched", TestCancelMatched},
		{"Split", TestSplitMessages}, {"LossEndsCollective", TestLossEndsCollective}, {"ShutdownDelivers", TestShutdownDelivers},
		{"OneBuffer", TestOneBufferOfManySends},
	} {
		t.Run(c.name, c.play)
	}
}

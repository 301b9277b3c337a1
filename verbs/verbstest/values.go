package verbstest

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of constants: what crosses the border to libibverbs has its values, as
// literals here. They need no device, but a device that is bound to libibverbs rests on them.

// number is the kind of type that libibverbs' enumerations have here.
type number interface{ ~uint8 | ~uint32 | ~uint64 }

// inOrder checks constants that count up from first.
func inOrder[C number](t *testing.T, first uint64, consts ...C) {
	t.Helper()
	for i, c := range consts {
		if want := first + uint64(i); uint64(c) != want {
			t.Errorf("%T %d stands where %d belongs", c, uint64(c), want)
		}
	}
}

// inBits checks flags that have one bit each, from bit 0 up.
func inBits[C number](t *testing.T, flags ...C) {
	t.Helper()
	for i, c := range flags {
		if uint64(c) != 1<<i {
			t.Errorf("%T %#x stands where bit %d belongs", c, uint64(c), i)
		}
	}
}

// is checks one constant.
func is[C number](t *testing.T, c C, want uint64) {
	t.Helper()
	if uint64(c) != want {
		t.Errorf("%T is %#x, want %#x", c, uint64(c), want)
	}
}

func testTMHOpcodes(t *testing.T) {
	inOrder(t, 0, verbs.TMHNoTag, verbs.TMHRndv, verbs.TMHFin, verbs.TMHEager)
}

func testTMValues(t *testing.T) {
	is(t, verbs.TMCapRC, 1)
	inBits(t, verbs.SRQInitType, verbs.SRQInitPD, verbs.SRQInitXRCD, verbs.SRQInitCQ, verbs.SRQInitTM)
	inOrder(t, 0, verbs.SRQTypeBasic, verbs.SRQTypeXRC, verbs.SRQTypeTM)
	is(t, verbs.WCExWithTMInfo, 1<<10)
}

func testOpsValues(t *testing.T) {
	inOrder(t, 0, verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync)
	inBits(t, verbs.OpsSignaled, verbs.OpsTMSync)
}

func testStatusTexts(t *testing.T) {
	for s, want := range map[verbs.WCStatus]string{22: "TM error", 23: "TM software rendezvous"} {
		if s.String() != want {
			t.Errorf("status %d is called %q, want %q", uint32(s), s, want)
		}
	}
}

func testCompletionValues(t *testing.T) {
	inOrder(t, 0, verbs.WCSend, verbs.WCRDMAWrite, verbs.WCRDMARead)
	inOrder(t, 128, verbs.WCRecv, verbs.WCRecvRDMAWithImm, verbs.WCTMAdd, verbs.WCTMDel, verbs.WCTMSync, verbs.WCTMRecv, verbs.WCTMNoTag)
	inBits(t, verbs.WCFlagGRH, verbs.WCFlagWithImm, verbs.WCFlagIPCsumOK, verbs.WCFlagWithInv, verbs.WCFlagTMSyncReq,
		verbs.WCFlagTMMatch, verbs.WCFlagTMDataValid)
	inOrder(t, 0, verbs.WCSuccess, verbs.WCLocLenErr)
	inOrder(t, 4, verbs.WCLocProtErr, verbs.WCWRFlushErr)
	inOrder(t, 9, verbs.WCRemInvReqErr, verbs.WCRemAccessErr, verbs.WCRemOpErr, verbs.WCRetryExcErr, verbs.WCRNRRetryExcErr)
	inOrder(t, 21, verbs.WCGeneralErr, verbs.WCTMErr, verbs.WCTMRndvIncomplete)
}

func testQPValues(t *testing.T) {
	inOrder(t, 0, verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE, verbs.QPSErr)
	is(t, verbs.QPMaskInit, 0x39)
	is(t, verbs.QPMaskRTR, 0x129181)
	is(t, verbs.QPMaskRTS, 0x12e01)
	inBits(t, verbs.AccessLocalWrite, verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic)
	inOrder(t, 1, verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU2048, verbs.MTU4096)
	for m, size := range map[verbs.MTU]int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096} {
		if m.Bytes() != size {
			t.Errorf("MTU %d is %d bytes, want %d", m, m.Bytes(), size)
		}
	}
}

// testRNRCodes: the table of TMO 8.1, in milliseconds.
func testRNRCodes(t *testing.T) {
	for code, ms := range []float64{655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84, 5.12,
		7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52} {
		if got, want := verbs.RNRTimer(uint8(code)), int64(ms*1e6+.5); got != want {
			t.Errorf("code %d stands for %d ns, want %d", code, got, want)
		}
	}
}

func testSendValues(t *testing.T) {
	inOrder(t, 0, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMARead,
		verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRLocalInv, verbs.WRBindMW, verbs.WRSendWithInv, verbs.WRTSO,
		verbs.WRDriver1)
	inOrder(t, 14, verbs.WRFlush, verbs.WRAtomicWrite)
	inBits(t, verbs.SendFence, verbs.SendSignaled, verbs.SendSolicited, verbs.SendInline, verbs.SendIPCsum)
}

func testLimitValues(t *testing.T) {
	inBits(t, verbs.SRQMaxWR, verbs.SRQLimit)
	inOrder(t, 15, verbs.EventSRQLimitReached, verbs.EventQPLastWQEReached)
}

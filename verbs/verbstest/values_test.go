package verbstest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// TestValues: what crosses the border to libibverbs has its values, as literals here.
func TestValues(t *testing.T) {
	for i, op := range []verbs.TMHOpcode{verbs.TMHNoTag, verbs.TMHRndv, verbs.TMHFin, verbs.TMHEager} {
		require.EqualValues(t, i, op)
	}
	for v, op := range map[int]verbs.WCOpcode{0: verbs.WCSend, 1: verbs.WCRDMAWrite, 2: verbs.WCRDMARead, 128: verbs.WCRecv,
		129: verbs.WCRecvRDMAWithImm, 130: verbs.WCTMAdd, 131: verbs.WCTMDel, 132: verbs.WCTMSync, 133: verbs.WCTMRecv,
		134: verbs.WCTMNoTag} {
		require.EqualValues(t, v, op)
	}
	for bit, f := range []verbs.WCFlags{verbs.WCFlagGRH, verbs.WCFlagWithImm, verbs.WCFlagIPCsumOK, verbs.WCFlagWithInv,
		verbs.WCFlagTMSyncReq, verbs.WCFlagTMMatch, verbs.WCFlagTMDataValid} {
		require.EqualValues(t, 1<<bit, f)
	}
	for v, s := range map[int]verbs.WCStatus{0: verbs.WCSuccess, 1: verbs.WCLocLenErr, 4: verbs.WCLocProtErr, 5: verbs.WCWRFlushErr,
		9: verbs.WCRemInvReqErr, 10: verbs.WCRemAccessErr, 11: verbs.WCRemOpErr, 12: verbs.WCRetryExcErr, 13: verbs.WCRNRRetryExcErr,
		21: verbs.WCGeneralErr, 22: verbs.WCTMErr, 23: verbs.WCTMRndvIncomplete} {
		require.EqualValues(t, v, s)
	}
	require.Equal(t, "TM error", verbs.WCTMErr.String())
	require.Equal(t, "TM software rendezvous", verbs.WCTMRndvIncomplete.String())

	for i, o := range []verbs.OpsOpcode{verbs.WRTagAdd, verbs.WRTagDel, verbs.WRTagSync} {
		require.EqualValues(t, i, o)
	}
	require.EqualValues(t, 1, verbs.OpsSignaled)
	require.EqualValues(t, 2, verbs.OpsTMSync)
	require.EqualValues(t, 0x1b, verbs.SRQInitType|verbs.SRQInitPD|verbs.SRQInitCQ|verbs.SRQInitTM)
	require.EqualValues(t, 2, verbs.SRQTypeTM)
	require.EqualValues(t, 1<<10, verbs.WCExWithTMInfo)
	require.EqualValues(t, 1, verbs.TMCapRC)

	for i, s := range []verbs.QPState{verbs.QPSReset, verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE, verbs.QPSErr} {
		require.EqualValues(t, i, s)
	}
	require.EqualValues(t, 0x39, verbs.QPMaskInit)
	require.EqualValues(t, 0x129181, verbs.QPMaskRTR)
	require.EqualValues(t, 0x12e01, verbs.QPMaskRTS)
	require.EqualValues(t, []verbs.AccessFlags{1, 2, 4, 8},
		[]verbs.AccessFlags{verbs.AccessLocalWrite, verbs.AccessRemoteWrite, verbs.AccessRemoteRead, verbs.AccessRemoteAtomic})
	require.Equal(t, 256, verbs.MTU256.Bytes())
	require.Equal(t, 4096, verbs.MTU(5).Bytes())
	for i, f := range []verbs.SendFlags{verbs.SendFence, verbs.SendSignaled, verbs.SendSolicited, verbs.SendInline, verbs.SendIPCsum} {
		require.EqualValues(t, 1<<i, f)
	}
	require.EqualValues(t, []verbs.AsyncEventType{15, 16}, []verbs.AsyncEventType{verbs.EventSRQLimitReached, verbs.EventQPLastWQEReached})

	for code, ms := range []float64{655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84, 5.12,
		7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52} {
		require.InDelta(t, ms*1e6, float64(verbs.RNRTimer(uint8(code))), 1, "code %d", code)
	}
}

// TestHeaders: TMH and RVH to the byte, both ways.
func TestHeaders(t *testing.T) {
	require.Equal(t, []int{16, 16}, []int{verbs.TMHSize, verbs.RVHSize})
	b := make([]byte, 16)
	for i := range b {
		b[i] = 0xff
	}
	tmh := verbs.TMH{Opcode: verbs.TMHEager, AppCtx: 0x01020304, Tag: 0x1112131415161718}
	tmh.Put(b)
	require.Equal(t, []byte{3, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}, b)
	require.Equal(t, tmh, verbs.ParseTMH(b))
	rvh := verbs.RVH{VA: 0x2122232425262728, RKey: 0x31323334, Len: 0x41424344}
	rvh.Put(b)
	require.Equal(t, []byte{0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44}, b)
	require.Equal(t, rvh, verbs.ParseRVH(b))
}

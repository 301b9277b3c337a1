package verbs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// TestOpcodesByType is the table of ibv_post_send(3), row by row (TMO 8.2).
func TestOpcodesByType(t *testing.T) {
	types := []verbs.QPType{verbs.QPTUD, verbs.QPTUC, verbs.QPTRC, verbs.QPTXRCSend, verbs.QPTRawPacket, verbs.QPTXRCRecv}
	rows := map[verbs.SendOpcode]string{
		verbs.WRSend:              "xxxxx.",
		verbs.WRSendWithImm:       "xxxx..",
		verbs.WRRDMAWrite:         ".xxx..",
		verbs.WRRDMAWriteWithImm:  ".xxx..",
		verbs.WRRDMARead:          "..xx..",
		verbs.WRAtomicCmpAndSwp:   "..xx..",
		verbs.WRAtomicFetchAndAdd: "..xx..",
		verbs.WRLocalInv:          ".xxx..",
		verbs.WRBindMW:            ".xxx..",
		verbs.WRSendWithInv:       ".xxx..",
		verbs.WRTSO:               "x...x.",
	}
	for op := range verbs.SendOpcode(40) {
		row, ok := rows[op]
		if !ok {
			row = "......"
		}
		for i, typ := range types {
			if got, want := verbs.OpcodeAllowed(typ, op), row[i] == 'x'; got != want {
				t.Errorf("%v on %v: %v, want %v", op, typ, got, want)
			}
		}
	}
	if verbs.OpcodeAllowed(1000, verbs.WRSend) {
		t.Error("an unknown QP type carries SEND")
	}
}

func TestSendFlags(t *testing.T) {
	for _, c := range []struct {
		typ   verbs.QPType
		op    verbs.SendOpcode
		flags verbs.SendFlags
		ok    bool
	}{
		{verbs.QPTRC, verbs.WRSend, verbs.SendFence | verbs.SendSignaled | verbs.SendSolicited | verbs.SendInline, true},
		{verbs.QPTUC, verbs.WRSend, verbs.SendFence, false},
		{verbs.QPTRC, verbs.WRRDMAWrite, verbs.SendInline, true},
		{verbs.QPTRC, verbs.WRRDMAWrite, verbs.SendSolicited, false},
		{verbs.QPTRC, verbs.WRRDMAWriteWithImm, verbs.SendSolicited, true},
		{verbs.QPTRC, verbs.WRRDMARead, verbs.SendInline, false},
		{verbs.QPTRC, verbs.WRAtomicFetchAndAdd, verbs.SendInline, false},
		{verbs.QPTRC, verbs.WRSend, verbs.SendIPCsum, false},
		{verbs.QPTUD, verbs.WRSend, verbs.SendIPCsum, true},
		{verbs.QPTRC, verbs.WRSend, 1 << 9, false},
		{verbs.QPTRC, verbs.WRTSO, 0, false},
	} {
		err := verbs.CheckSend(c.typ, c.op, c.flags)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v %v with flags %#x: %v", c.typ, c.op, c.flags, err)
		}
	}
}

func TestQPValues(t *testing.T) {
	rtr := verbs.QPAttr{State: verbs.QPSRTR, PathMTU: verbs.MTU4096}
	for what, change := range map[string]func(a *verbs.QPAttr){
		"MTU": func(a *verbs.QPAttr) { a.PathMTU = 6 }, "RQPSN": func(a *verbs.QPAttr) { a.RQPSN = 1 << 24 },
		"DestQPN": func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }, "MinRNRTimer": func(a *verbs.QPAttr) { a.MinRNRTimer = 32 },
	} {
		a := rtr
		change(&a)
		if err := verbs.CheckTransition(verbs.QPSInit, &a, verbs.QPMaskRTR); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := verbs.CheckTransition(verbs.QPSInit, &rtr, verbs.QPMaskRTR); err != nil {
		t.Error(err)
	}
	if verbs.QPMaskRTR != 0x129181 || verbs.QPMaskRTS != 0x12e01 {
		t.Errorf("masks %#x, %#x", uint32(verbs.QPMaskRTR), uint32(verbs.QPMaskRTS))
	}
}

func TestRNRTimer(t *testing.T) {
	for code, ns := range map[uint8]int64{0: 655_360_000, 1: 10_000, 5: 60_000, 14: 1_280_000, 31: 491_520_000} {
		if got := verbs.RNRTimer(code); got != ns {
			t.Errorf("code %d: %d ns, want %d", code, got, ns)
		}
	}
}

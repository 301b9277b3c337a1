package verbs

import (
	"fmt"
	"strings"
	"syscall"
)

// This file has the rules that all devices enforce: which attributes a state transition needs and
// allows (ibv_modify_qp(3), TMO 8.1), and which opcodes and flags a QP type takes
// (ibv_post_send(3), TMO 8.2).

// transition is a row of the table of ibv_modify_qp(3): the attributes needed and allowed besides
// QPAttrState.
type transition struct{ need, allow QPAttrMask }

const (
	rtsAllow = QPAttrAccessFlags | QPAttrMinRNRTimer
	sqdAllow = QPAttrPort | QPAttrAV | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRdAtomic |
		QPAttrMaxDestRdAtomic | QPAttrAccessFlags | QPAttrPKeyIndex | QPAttrMinRNRTimer
)

var rcTransitions = map[[2]QPState]transition{
	{QPSReset, QPSInit}: {need: QPMaskInit &^ QPAttrState},
	{QPSInit, QPSInit}:  {allow: QPMaskInit &^ QPAttrState},
	{QPSInit, QPSRTR}:   {need: QPMaskRTR &^ QPAttrState, allow: QPAttrAccessFlags | QPAttrPKeyIndex},
	{QPSRTR, QPSRTS}:    {need: QPMaskRTS &^ QPAttrState, allow: rtsAllow},
	{QPSRTS, QPSRTS}:    {allow: rtsAllow},
	{QPSRTS, QPSSQD}:    {},
	{QPSSQD, QPSRTS}:    {allow: rtsAllow},
	{QPSSQD, QPSSQD}:    {allow: sqdAllow},
}

// CheckTransition checks whether an RC queue pair in state from may take attr with mask, values
// included. The error names missing and illegal attributes. Without QPAttrState the state stays.
func CheckTransition(from QPState, attr *QPAttr, mask QPAttrMask) error {
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	rest := mask &^ QPAttrState
	row, ok := rcTransitions[[2]QPState{from, to}]
	switch {
	case ok:
	case to == QPSErr || to == QPSReset && from <= QPSErr:
		row = transition{} // legal in any state, with QPAttrState alone
	default:
		return modifyErr("no transition from %v to %v", from, to)
	}
	if miss := row.need &^ rest; miss != 0 {
		return modifyErr("%v to %v needs %v", from, to, miss)
	}
	if extra := rest &^ (row.need | row.allow); extra != 0 {
		return modifyErr("%v to %v does not take %v", from, to, extra)
	}
	return checkQPValues(attr, rest)
}

func checkQPValues(a *QPAttr, mask QPAttrMask) error {
	const allAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
	for _, c := range []struct {
		bit  QPAttrMask
		bad  bool
		what string
	}{
		{QPAttrPathMTU, a.PathMTU < MTU256 || a.PathMTU > MTU4096, "path MTU is an enum, 1 (256 bytes) to 5 (4096)"},
		{QPAttrRQPSN, a.RQPSN >= 1<<24, "RQPSN has 24 bits"},
		{QPAttrSQPSN, a.SQPSN >= 1<<24, "SQPSN has 24 bits"},
		{QPAttrDestQPN, a.DestQPN >= 1<<24, "DestQPN has 24 bits"},
		{QPAttrAccessFlags, a.AccessFlags&^allAccess != 0, "unknown access flags"},
		{QPAttrPKeyIndex, a.PKeyIndex != 0, "the only pkey index is 0"},
		{QPAttrPort, a.Port != 1, "the only port is 1"},
		{QPAttrMinRNRTimer, a.MinRNRTimer > 31, "MinRNRTimer is a code of 0 to 31"},
		{QPAttrTimeout, a.Timeout > 31, "Timeout is 0 to 31"},
		{QPAttrRetryCnt, a.RetryCnt > 7, "RetryCnt is 0 to 7"},
		{QPAttrRNRRetry, a.RNRRetry > 7, "RNRRetry is 0 to 7"},
	} {
		if mask&c.bit != 0 && c.bad {
			return modifyErr("%s", c.what)
		}
	}
	return nil
}

func modifyErr(format string, args ...any) error {
	return &Error{Op: "modify_qp", Errno: syscall.EINVAL, Detail: fmt.Sprintf(format, args...)}
}

// opcodeTypes lists the QP types that support an opcode (table of ibv_post_send(3)).
var opcodeTypes = map[SendOpcode][]QPType{
	WRSend:              {QPTUD, QPTUC, QPTRC, QPTXRCSend, QPTRawPacket},
	WRSendWithImm:       {QPTUD, QPTUC, QPTRC, QPTXRCSend},
	WRRDMAWrite:         {QPTUC, QPTRC, QPTXRCSend},
	WRRDMAWriteWithImm:  {QPTUC, QPTRC, QPTXRCSend},
	WRRDMARead:          {QPTRC, QPTXRCSend},
	WRAtomicCmpAndSwp:   {QPTRC, QPTXRCSend},
	WRAtomicFetchAndAdd: {QPTRC, QPTXRCSend},
	WRLocalInv:          {QPTUC, QPTRC, QPTXRCSend},
	WRBindMW:            {QPTUC, QPTRC, QPTXRCSend},
	WRSendWithInv:       {QPTUC, QPTRC, QPTXRCSend},
	WRTSO:               {QPTUD, QPTRawPacket},
}

// opcodeMask is opcodeTypes by opcode, one bit for each type, so that the check in PostSend is a
// load.
var opcodeMask = func() (m [16]uint16) {
	for op, types := range opcodeTypes {
		for _, t := range types {
			m[op] |= 1 << t
		}
	}
	return m
}()

// OpcodeAllowed reports whether queue pairs of type t support op.
func OpcodeAllowed(t QPType, op SendOpcode) bool {
	return int(op) < len(opcodeMask) && t < 16 && opcodeMask[op]&(1<<t) != 0
}

// CheckSend checks opcode and flags of a send request for a queue pair of type t.
func CheckSend(t QPType, op SendOpcode, flags SendFlags) error {
	if !OpcodeAllowed(t, op) {
		return sendErr("%v queue pairs do not carry %v", t, op)
	}
	if flags&^(SendFence|SendSignaled|SendSolicited|SendInline|SendIPCsum) != 0 {
		return sendErr("unknown send flags %#x", uint32(flags))
	}
	imm := op == WRRDMAWriteWithImm
	send := op == WRSend || op == WRSendWithImm || op == WRSendWithInv
	switch {
	case flags&SendFence != 0 && t != QPTRC:
		return sendErr("SendFence is for RC only")
	case flags&SendSolicited != 0 && !send && !imm:
		return sendErr("SendSolicited does not go with %v", op)
	case flags&SendInline != 0 && !send && !imm && op != WRRDMAWrite:
		return sendErr("SendInline does not go with %v", op)
	case flags&SendIPCsum != 0 && t != QPTUD && t != QPTRawPacket:
		return sendErr("SendIPCsum is for UD and raw packets only")
	}
	return nil
}

func sendErr(format string, args ...any) error {
	return &Error{Op: "post_send", Errno: syscall.EINVAL, Detail: fmt.Sprintf(format, args...)}
}

// RNRTimer is the time of code c of QPAttr.MinRNRTimer, in nanoseconds (TMO 8.1).
func RNRTimer(c uint8) int64 {
	steps := [32]int64{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
		3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}
	return steps[c&31] * 10_000
}

// names returns the name of an enumeration value for error messages.
func names(list []string, i int, kind string) string {
	if i >= 0 && i < len(list) && list[i] != "" {
		return list[i]
	}
	return fmt.Sprintf("%s %d", kind, i)
}

// String is the name of the state in libibverbs.
func (s QPState) String() string {
	return names([]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, int(s), "state")
}

// String is the name of the type in libibverbs.
func (t QPType) String() string {
	return names([]string{2: "RC", 3: "UC", 4: "UD", 8: "RAW_PACKET", 9: "XRC_SEND", 10: "XRC_RECV"}, int(t), "QP type")
}

// String is the name of the opcode in libibverbs.
func (o SendOpcode) String() string {
	return names([]string{"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
		"ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO", "DRIVER1", 14: "FLUSH", 15: "ATOMIC_WRITE"},
		int(o), "opcode")
}

// String is the name of the event in libibverbs.
func (e AsyncEventType) String() string {
	return names([]string{"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", 8: "DEVICE_FATAL",
		9: "PORT_ACTIVE", 10: "PORT_ERR", 14: "SRQ_ERR",
		15: "SRQ_LIMIT_REACHED", 16: "QP_LAST_WQE_REACHED"}, int(e), "event")
}

// String lists the attributes of a mask, as in "AV|PATH_MTU".
func (m QPAttrMask) String() string {
	bits := []string{0: "STATE", 3: "ACCESS_FLAGS", 4: "PKEY_INDEX", 5: "PORT", 6: "QKEY", 7: "AV", 8: "PATH_MTU", 9: "TIMEOUT",
		10: "RETRY_CNT", 11: "RNR_RETRY", 12: "RQ_PSN", 13: "MAX_QP_RD_ATOMIC", 15: "MIN_RNR_TIMER", 16: "SQ_PSN",
		17: "MAX_DEST_RD_ATOMIC", 20: "DEST_QPN"}
	var out []string
	for i := range 32 {
		if m&(1<<i) != 0 {
			out = append(out, names(bits, i, "bit"))
		}
	}
	return strings.Join(out, "|")
}

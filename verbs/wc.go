package verbs

import "fmt"

// WCStatus is enum ibv_wc_status.
type WCStatus uint32

const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
)

var wcStatusNames = [...]string{
	WCSuccess:          "success",
	WCLocLenErr:        "local length error",
	WCLocQPOpErr:       "local QP operation error",
	WCLocEECOpErr:      "local EE context operation error",
	WCLocProtErr:       "local protection error",
	WCWRFlushErr:       "Work Request Flushed Error",
	WCMWBindErr:        "memory management operation error",
	WCBadRespErr:       "bad response error",
	WCLocAccessErr:     "local access error",
	WCRemInvReqErr:     "remote invalid request error",
	WCRemAccessErr:     "remote access error",
	WCRemOpErr:         "remote operation error",
	WCRetryExcErr:      "transport retry counter exceeded",
	WCRNRRetryExcErr:   "RNR retry counter exceeded",
	WCLocRDDViolErr:    "local RDD violation error",
	WCRemInvRDReqErr:   "remote invalid RD request",
	WCRemAbortErr:      "aborted error",
	WCInvEECNErr:       "invalid EE context number",
	WCInvEECStateErr:   "invalid EE context state",
	WCFatalErr:         "fatal error",
	WCRespTimeoutErr:   "response timeout error",
	WCGeneralErr:       "general error",
	WCTMErr:            "TM error",
	WCTMRndvIncomplete: "TM software rendezvous",
}

// String is libibverbs' text for the status (ibv_wc_status_str, TMO 3.5).
func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return fmt.Sprintf("unknown status %d", uint32(s))
}

// FailsAlone reports whether an RDMA READ that ends with s leaves its queue pair in RTS, where
// QPInitAttr.ReadFaults is set.
func (s WCStatus) FailsAlone() bool {
	switch s {
	case WCLocProtErr, WCLocAccessErr, WCRemAccessErr, WCRemOpErr:
		return true
	}
	return false
}

// WCOpcode is enum ibv_wc_opcode. Compare with ==: libibverbs' idiom opcode & IBV_WC_RECV is also
// true for list operations.
type WCOpcode uint32

const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCTSO             WCOpcode = 7
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
	WCTMAdd           WCOpcode = 130
	WCTMDel           WCOpcode = 131
	WCTMSync          WCOpcode = 132
	WCTMRecv          WCOpcode = 133
	WCTMNoTag         WCOpcode = 134
)

// WCFlags is enum ibv_wc_flags.
type WCFlags uint32

const (
	WCFlagGRH         WCFlags = 1 << 0
	WCFlagWithImm     WCFlags = 1 << 1
	WCFlagIPCsumOK    WCFlags = 1 << 2
	WCFlagWithInv     WCFlags = 1 << 3
	WCFlagTMSyncReq   WCFlags = 1 << 4
	WCFlagTMMatch     WCFlags = 1 << 5
	WCFlagTMDataValid WCFlags = 1 << 6
)

// WC is a work completion. After an error status only WRID, Status, QPNum and VendorErr are valid
// (ibv_poll_cq(3)).
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	Flags     WCFlags
	ByteLen   uint32
	QPNum     uint32
	Imm       uint32 // immediate data, with WCFlagWithImm
	VendorErr uint32
	Priv      uint32 // tag matching: TMH.AppCtx, valid with WCFlagTMMatch
	Tag       uint64 // tag matching: TMH.Tag, valid with WCFlagTMMatch
	// Data, if not nil, is the received message in the device's memory (ByteLen bytes), and the
	// posted buffer was not written. It is valid while the Handler has the completion, and must not
	// be changed.
	Data []byte
}

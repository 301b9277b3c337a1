package verbs

// QPType is enum ibv_qp_type.
type QPType uint32

const (
	QPTRC        QPType = 2
	QPTUC        QPType = 3
	QPTUD        QPType = 4
	QPTRawPacket QPType = 8
	QPTXRCSend   QPType = 9
	QPTXRCRecv   QPType = 10
)

// QPState is enum ibv_qp_state.
type QPState uint32

const (
	QPSReset QPState = iota
	QPSInit
	QPSRTR
	QPSRTS
	QPSSQD
	QPSSQE
	QPSErr
)

// MTU is enum ibv_mtu: 1 to 5 for 256 to 4096 bytes.
type MTU uint32

const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU in bytes.
func (m MTU) Bytes() int { return 128 << m }

// QPInitAttr describes a QP to create (struct ibv_qp_init_attr).
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	SRQ            SRQ // nil: the QP has a receive queue of its own
	Cap            QPCap
	Type           QPType
	SQSigAll       bool // every send request is signalled

	// ReadFaults is an extension that no NIC has (DeviceAttr.ReadFaults); CreateQP clears it where
	// it is not granted. An RDMA READ fails alone, and both QPs stay in RTS (WCStatus.FailsAlone),
	// if one of its regions was deregistered, the peer's (WCRemAccessErr) or that which it reads
	// into (WCLocProtErr), or has memory that is unmapped or protected (WCRemOpErr,
	// WCLocAccessErr). Nothing is written after Dereg has returned nil. So either buffer can be
	// freed before the READ has ended.
	ReadFaults bool
}

// QPCap are the sizes of a QP's queues.
type QPCap struct {
	MaxSendWR, MaxRecvWR   uint32
	MaxSendSGE, MaxRecvSGE uint32
	MaxInlineData          uint32 // bytes
}

// QPAttrMask is enum ibv_qp_attr_mask.
type QPAttrMask uint32

const (
	QPAttrState           QPAttrMask = 1 << 0
	QPAttrAccessFlags     QPAttrMask = 1 << 3
	QPAttrPKeyIndex       QPAttrMask = 1 << 4
	QPAttrPort            QPAttrMask = 1 << 5
	QPAttrQKey            QPAttrMask = 1 << 6
	QPAttrAV              QPAttrMask = 1 << 7
	QPAttrPathMTU         QPAttrMask = 1 << 8
	QPAttrTimeout         QPAttrMask = 1 << 9
	QPAttrRetryCnt        QPAttrMask = 1 << 10
	QPAttrRNRRetry        QPAttrMask = 1 << 11
	QPAttrRQPSN           QPAttrMask = 1 << 12
	QPAttrMaxQPRdAtomic   QPAttrMask = 1 << 13
	QPAttrMinRNRTimer     QPAttrMask = 1 << 15
	QPAttrSQPSN           QPAttrMask = 1 << 16
	QPAttrMaxDestRdAtomic QPAttrMask = 1 << 17
	QPAttrDestQPN         QPAttrMask = 1 << 20

	// QPMaskInit, QPMaskRTR and QPMaskRTS are the attributes an RC QP needs for each transition
	// (TMO 8.1).
	QPMaskInit = QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags
	QPMaskRTR  = QPAttrState | QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer
	QPMaskRTS  = QPAttrState | QPAttrSQPSN | QPAttrMaxQPRdAtomic | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrTimeout
)

// AddressVector is the address of a QP's peer.
type AddressVector struct {
	Address []byte // the peer's Device.Address

	// In Query of the software device: the one of DeviceAttr.Wires in use.
	Wire string
}

// QPAttr are the attributes of a QP (struct ibv_qp_attr).
type QPAttr struct {
	State           QPState
	PathMTU         MTU
	RQPSN, SQPSN    uint32 // 24 bits
	DestQPN         uint32
	AccessFlags     AccessFlags
	AV              AddressVector
	PKeyIndex       uint16 // 0: the P_Key that the device was opened with
	Port            uint8  // 1: the port that the device was opened with
	MaxRdAtomic     uint8  // outstanding RDMA READs as initiator
	MaxDestRdAtomic uint8  // as target
	MinRNRTimer     uint8  // code, see TMO 8.1
	Timeout         uint8  // 0 = for ever, n = 4.096 us x 2^n
	RetryCnt        uint8  // 0..7
	RNRRetry        uint8  // 0..6, 7 = for ever
}

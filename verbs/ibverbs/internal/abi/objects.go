package abi

// PD is struct ibv_pd.
type PD struct {
	Context uintptr // context
	_       uint32
}

// MR is struct ibv_mr.
type MR struct {
	Context uintptr // context
	PD      uintptr // pd
	Addr    uintptr // addr
	Length  uint64  // length
	_       uint32
	LKey    uint32 // lkey
	RKey    uint32 // rkey
}

// CompChannel is struct ibv_comp_channel.
type CompChannel struct {
	Context uintptr // context
	FD      int32   // fd
	_       int32
}

// CQ is struct ibv_cq.
type CQ struct {
	Context uintptr // context
	Channel uintptr // channel
	_       uintptr
	_       uint32
	CQE     int32 // cqe
	_       mutex
	_       cond
	_       [2]uint32
}

// CQEx is struct ibv_cq_ex, which begins as a CQ does. Status and WRID are of the current
// completion, as are all that the operations read.
type CQEx struct {
	CQ
	CompMask      uint32  // comp_mask
	Status        uint32  // status
	WRID          uint64  // wr_id
	StartPoll     uintptr // start_poll
	NextPoll      uintptr // next_poll
	EndPoll       uintptr // end_poll
	ReadOpcode    uintptr // read_opcode
	ReadVendorErr uintptr // read_vendor_err
	ReadByteLen   uintptr // read_byte_len
	ReadImmData   uintptr // read_imm_data
	ReadQPNum     uintptr // read_qp_num
	_             uintptr
	ReadWCFlags   uintptr // read_wc_flags
	_             [6]uintptr
	ReadTMInfo    uintptr // read_tm_info
}

// CQInitAttrEx is struct ibv_cq_init_attr_ex.
type CQInitAttrEx struct {
	CQE        uint32  // cqe
	CQContext  uintptr // cq_context
	Channel    uintptr // channel, may be 0
	CompVector uint32  // comp_vector
	WCFlags    uint64  // wc_flags
	CompMask   uint32  // comp_mask
	_          uint32
	_          uintptr
}

// Fields of a completion that CQInitAttrEx.WCFlags asks for, beside verbs.WCExWithTMInfo.
const (
	WCExWithByteLen = 1 << 0 // IBV_WC_EX_WITH_BYTE_LEN
	WCExWithImm     = 1 << 1 // IBV_WC_EX_WITH_IMM
	WCExWithQPNum   = 1 << 2 // IBV_WC_EX_WITH_QP_NUM
)

// SRQ is struct ibv_srq.
type SRQ struct {
	Context uintptr // context
	_       uintptr
	PD      uintptr // pd
	_       uint32
	_       mutex
	_       cond
	_       uint32
}

// SRQAttr is struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR    uint32 // max_wr
	MaxSGE   uint32 // max_sge
	SRQLimit uint32 // srq_limit
}

// SRQInitAttr is struct ibv_srq_init_attr.
type SRQInitAttr struct {
	SRQContext uintptr // srq_context
	Attr       SRQAttr // attr
}

// SRQInitAttrEx is struct ibv_srq_init_attr_ex. It begins as an SRQInitAttr does, but for that
// one's padding.
type SRQInitAttrEx struct {
	SRQContext uintptr // srq_context
	Attr       SRQAttr // attr
	CompMask   uint32  // comp_mask
	SRQType    uint32  // srq_type
	PD         uintptr // pd
	_          uintptr
	CQ         uintptr // cq
	TMCap      TMCap   // tm_cap
}

// TMCap is struct ibv_tm_cap.
type TMCap struct {
	MaxNumTags uint32 // max_num_tags
	MaxOps     uint32 // max_ops
}

// QP is struct ibv_qp.
type QP struct {
	Context uintptr // context
	_       uintptr
	PD      uintptr // pd
	SendCQ  uintptr // send_cq
	RecvCQ  uintptr // recv_cq
	SRQ     uintptr // srq
	_       uint32
	QPNum   uint32 // qp_num
	_       [2]uint32
	_       mutex
	_       cond
	_       uint32
}

// QPCap is struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR     uint32 // max_send_wr
	MaxRecvWR     uint32 // max_recv_wr
	MaxSendSGE    uint32 // max_send_sge
	MaxRecvSGE    uint32 // max_recv_sge
	MaxInlineData uint32 // max_inline_data
}

// QPInitAttr is struct ibv_qp_init_attr.
type QPInitAttr struct {
	QPContext uintptr // qp_context
	SendCQ    uintptr // send_cq
	RecvCQ    uintptr // recv_cq
	SRQ       uintptr // srq, may be 0
	Cap       QPCap   // cap
	QPType    uint32  // qp_type
	SQSigAll  int32   // sq_sig_all
}

// QPAttr is struct ibv_qp_attr.
type QPAttr struct {
	QPState         uint32 // qp_state
	_               uint32
	PathMTU         uint32 // path_mtu
	_               [2]uint32
	RQPSN           uint32 // rq_psn
	SQPSN           uint32 // sq_psn
	DestQPNum       uint32 // dest_qp_num
	QPAccessFlags   uint32 // qp_access_flags
	_               QPCap
	AH              AHAttr // ah_attr
	_               AHAttr
	PKeyIndex       uint16 // pkey_index
	_               uint16
	_               [2]uint8
	MaxRdAtomic     uint8 // max_rd_atomic
	MaxDestRdAtomic uint8 // max_dest_rd_atomic
	MinRNRTimer     uint8 // min_rnr_timer
	PortNum         uint8 // port_num
	Timeout         uint8 // timeout
	RetryCnt        uint8 // retry_cnt
	RNRRetry        uint8 // rnr_retry
	_               [2]uint8
	_               [2]uint32
}

// AHAttr is struct ibv_ah_attr: how packets find a peer's port.
type AHAttr struct {
	DGID         [16]byte // grh.dgid
	_            uint32
	SGIDIndex    uint8  // grh.sgid_index
	HopLimit     uint8  // grh.hop_limit
	TrafficClass uint8  // grh.traffic_class
	DLID         uint16 // dlid
	SL           uint8  // sl
	_            [2]uint8
	IsGlobal     uint8 // is_global: 1 where grh is used
	PortNum      uint8 // port_num
}

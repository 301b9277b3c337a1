package abi

// SGE is struct ibv_sge.
type SGE struct {
	Addr   uint64 // addr
	Length uint32 // length
	LKey   uint32 // lkey
}

// SendWR is struct ibv_send_wr. Opcode and flags are verbs.SendOpcode and verbs.SendFlags.
type SendWR struct {
	WRID       uint64  // wr_id
	Next       uintptr // next
	SGList     uintptr // sg_list
	NumSGE     int32   // num_sge
	Opcode     uint32  // opcode
	SendFlags  uint32  // send_flags
	ImmData    uint32  // imm_data, big-endian
	RemoteAddr uint64  // wr.rdma.remote_addr
	RKey       uint32  // wr.rdma.rkey
	_          [9]uint64
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	WRID   uint64  // wr_id
	Next   uintptr // next
	SGList uintptr // sg_list
	NumSGE int32   // num_sge
}

// OpsWR is struct ibv_ops_wr. Opcode and flags are verbs.OpsOpcode and verbs.OpsFlags.
type OpsWR struct {
	WRID          uint64  // wr_id
	Next          uintptr // next
	Opcode        uint32  // opcode
	Flags         int32   // flags
	UnexpectedCnt uint32  // tm.unexpected_cnt
	Handle        uint32  // tm.handle: result of ADD, argument of DEL
	RecvWRID      uint64  // tm.add.recv_wr_id
	SGList        uintptr // tm.add.sg_list
	NumSGE        int32   // tm.add.num_sge
	Tag           uint64  // tm.add.tag
	Mask          uint64  // tm.add.mask
}

// WC is struct ibv_wc. Status, opcode and flags are verbs.WCStatus, verbs.WCOpcode and
// verbs.WCFlags.
type WC struct {
	WRID      uint64 // wr_id
	Status    uint32 // status
	Opcode    uint32 // opcode
	VendorErr uint32 // vendor_err
	ByteLen   uint32 // byte_len
	ImmData   uint32 // imm_data, big-endian
	QPNum     uint32 // qp_num
	_         uint32
	WCFlags   uint32 // wc_flags
	_         [2]uint16
	_         [2]uint8
}

// PollCQAttr is struct ibv_poll_cq_attr, for CQEx.StartPoll.
type PollCQAttr struct {
	CompMask uint32 // comp_mask, 0
}

// WCTMInfo is struct ibv_wc_tm_info, which CQEx.ReadTMInfo writes.
type WCTMInfo struct {
	Tag  uint64 // tag
	Priv uint32 // priv
}

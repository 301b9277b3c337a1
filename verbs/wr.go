package verbs

// SGE is a scatter/gather entry. The device uses the memory until the request's completion was
// polled, also if it does not hold the slice: the region is not deregistered before.
type SGE struct {
	Data []byte
	LKey uint32 // of the region that contains Data; not checked for SendInline
}

// SendOpcode is enum ibv_wr_opcode as PostSend takes it. Devices have SEND and RDMA on RC, with
// immediate data or without; what else RC may carry, nothing uses.
type SendOpcode uint32

const (
	WRRDMAWrite         SendOpcode = 0
	WRRDMAWriteWithImm  SendOpcode = 1
	WRSend              SendOpcode = 2
	WRSendWithImm       SendOpcode = 3
	WRRDMARead          SendOpcode = 4
	WRAtomicCmpAndSwp   SendOpcode = 5
	WRAtomicFetchAndAdd SendOpcode = 6
	WRLocalInv          SendOpcode = 7
	WRBindMW            SendOpcode = 8
	WRSendWithInv       SendOpcode = 9
	WRTSO               SendOpcode = 10
	WRDriver1           SendOpcode = 11
	WRFlush             SendOpcode = 14
	WRAtomicWrite       SendOpcode = 15
)

// SendFlags is enum ibv_send_flags (TMO 8.2).
type SendFlags uint32

const (
	SendFence     SendFlags = 1 << 0 // wait for this QP's earlier RDMA reads
	SendSignaled  SendFlags = 1 << 1 // completion wanted
	SendSolicited SendFlags = 1 << 2 // raise a solicited event at the peer
	// Data is copied before PostSend returns; at most QPCap.MaxInlineData bytes.
	SendInline SendFlags = 1 << 3
	SendIPCsum SendFlags = 1 << 4
)

// SendWR is a send work request (struct ibv_send_wr). It is read during PostSend only; for its
// buffers see SGE.
type SendWR struct {
	WRID   uint64
	Next   *SendWR
	SGList []SGE // the array is read during PostSend only
	Opcode SendOpcode
	Flags  SendFlags
	Imm    uint32 // immediate data

	RemoteAddr uint64 // RDMA
	RKey       uint32
}

// RecvWR is a receive work request (struct ibv_recv_wr).
type RecvWR struct {
	WRID   uint64
	Next   *RecvWR
	SGList []SGE
}

// OpsOpcode is enum ibv_ops_wr_opcode.
type OpsOpcode uint32

const (
	WRTagAdd  OpsOpcode = 0
	WRTagDel  OpsOpcode = 1
	WRTagSync OpsOpcode = 2
)

// OpsFlags is enum ibv_ops_flags.
type OpsFlags uint32

const (
	OpsSignaled OpsFlags = 1 << 0
	OpsTMSync   OpsFlags = 1 << 1 // UnexpectedCnt is valid
)

// OpsWR is a list operation (struct ibv_ops_wr, TMO 3.1).
type OpsWR struct {
	WRID          uint64
	Next          *OpsWR
	Opcode        OpsOpcode
	Flags         OpsFlags
	UnexpectedCnt uint32 // unexpected messages handled by software; used with OpsTMSync
	Handle        uint32 // result of ADD, argument of DEL
	Add           TagAdd
}

// TagAdd is the part of an OpsWR for ADD. An entry matches a message when TMH.Tag & Mask == Tag, so
// Tag must have no bit outside Mask (TMO 3.1, V19).
type TagAdd struct {
	RecvWRID  uint64
	SGList    []SGE
	Tag, Mask uint64
}

package abi

// Device is struct ibv_device.
type Device struct {
	_             [2]uintptr
	_             int32
	TransportType int32    // transport_type
	Name          [64]byte // name, ends with a 0: "mlx5_0"
	DevName       [64]byte // dev_name, below /dev/infiniband: "uverbs0"
	_             [2][256]byte
}

// TransportIB is the transport of InfiniBand and RoCE devices, enum ibv_transport_type.
const TransportIB = 0 // IBV_TRANSPORT_IB

// Context is struct ibv_context, an opened device.
type Context struct {
	Device    uintptr    // device
	Ops       ContextOps // ops
	_         int32
	AsyncFD   int32 // async_fd
	_         int32
	_         mutex
	ABICompat uintptr // abi_compat: ABIExtended if a VerbsContext is in front
}

// ABIExtended is the value of Context.ABICompat.
const ABIExtended = ^uintptr(0) // __VERBS_ABI_IS_EXTENDED

// mutex and cond are pthread_mutex_t and pthread_cond_t.
type (
	mutex [mutexWords]uint64
	cond  [6]uint64
)

// ContextOps is struct ibv_context_ops. An operation that a provider lacks returns EOPNOTSUPP.
type ContextOps struct {
	_           [11]uintptr
	PollCQ      uintptr // poll_cq
	ReqNotifyCQ uintptr // req_notify_cq
	_           [7]uintptr
	PostSRQRecv uintptr // post_srq_recv
	_           [4]uintptr
	PostSend    uintptr // post_send
	PostRecv    uintptr // post_recv
	_           [5]uintptr
}

// VerbsContext is struct verbs_context without the Context at its end: it lies in front of that,
// and grows at its own front. Context.Op tells what of it is there.
type VerbsContext struct {
	QueryPort     uintptr // query_port
	_             [17]uintptr
	PostSRQOps    uintptr // post_srq_ops
	_             [6]uintptr
	CreateCQEx    uintptr // create_cq_ex
	_             uintptr
	QueryDeviceEx uintptr // query_device_ex
	_             [6]uintptr
	GetSRQNum     uintptr // get_srq_num
	CreateSRQEx   uintptr // create_srq_ex
	_             [3]uintptr
	Sz            uintptr // sz, bytes, up to the end of the Context
}

// DeviceAttr is struct ibv_device_attr.
type DeviceAttr struct {
	FWVer           [64]byte // fw_ver, ends with a 0
	_               [2]uint64
	MaxMRSize       uint64 // max_mr_size
	_               uint64
	VendorID        uint32 // vendor_id
	VendorPartID    uint32 // vendor_part_id
	_               uint32
	MaxQP           int32 // max_qp
	MaxQPWR         int32 // max_qp_wr
	_               uint32
	MaxSGE          int32 // max_sge
	_               int32
	MaxCQ           int32 // max_cq
	MaxCQE          int32 // max_cqe
	MaxMR           int32 // max_mr
	_               int32
	MaxQPRdAtom     int32 // max_qp_rd_atom
	_               [2]int32
	MaxQPInitRdAtom int32 // max_qp_init_rd_atom
	_               [13]int32
	MaxSRQ          int32 // max_srq
	MaxSRQWR        int32 // max_srq_wr
	MaxSRQSGE       int32 // max_srq_sge
	_               uint16
	_               uint8
	PhysPortCnt     uint8 // phys_port_cnt
}

// DeviceAttrEx is struct ibv_device_attr_ex. VerbsContext.QueryDeviceEx is told its size.
type DeviceAttrEx struct {
	Orig DeviceAttr // orig_attr
	_    [116]byte
	TM   TMCaps // tm_caps
	_    [32]byte
}

// TMCaps is struct ibv_tm_caps.
type TMCaps struct {
	MaxRndvHdrSize uint32 // max_rndv_hdr_size
	MaxNumTags     uint32 // max_num_tags
	Flags          uint32 // flags
	MaxOps         uint32 // max_ops
	MaxSGE         uint32 // max_sge
}

// PortAttr is struct ibv_port_attr. VerbsContext.QueryPort is told its size.
type PortAttr struct {
	State     uint32 // state
	MaxMTU    uint32 // max_mtu
	ActiveMTU uint32 // active_mtu
	GIDTblLen int32  // gid_tbl_len
	_         uint32
	MaxMsgSz  uint32 // max_msg_sz
	_         [2]uint32
	_         uint16
	LID       uint16 // lid
	_         uint16
	_         [8]uint8
	LinkLayer uint8 // link_layer
	Flags     uint8 // flags
	_         uint16
}

// States of a port, enum ibv_port_state. An active one can be used, an initialised one waits for
// the fabric's subnet manager.
const (
	PortInit   = 2 // IBV_PORT_INIT
	PortActive = 4 // IBV_PORT_ACTIVE
)

// Values of PortAttr.LinkLayer.
const (
	LinkLayerInfiniBand = 1 // IBV_LINK_LAYER_INFINIBAND
	LinkLayerEthernet   = 2 // IBV_LINK_LAYER_ETHERNET
)

// PortGRHRequired is the one of PortAttr.Flags by which each AHAttr needs a GID.
const PortGRHRequired = 1 // IBV_QPF_GRH_REQUIRED

// GIDEntry is struct ibv_gid_entry. The query is told its size.
type GIDEntry struct {
	GID      [16]byte // gid
	GIDIndex uint32   // gid_index
	PortNum  uint32   // port_num
	GIDType  uint32   // gid_type
	_        uint32
}

// GIDTypeRoCEv2 is a GID of an IP address, enum ibv_gid_type.
const GIDTypeRoCEv2 = 2 // IBV_GID_TYPE_ROCE_V2

// AsyncEvent is struct ibv_async_event. The type is a verbs.AsyncEventType.
type AsyncEvent struct {
	Element   uintptr // element: the CQ, QP or SRQ; of a port its number, in the low 32 bits
	EventType uint32  // event_type
}

package ibverbs

import (
	"bytes"
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// batch is how many requests are posted, and completions polled, in one call.
const batch = 32

// maxSGE is the most entries of a request, and maxInline the most bytes of its inline payload,
// whatever the device has.
const (
	maxSGE    = 32
	maxInline = 512
)

// slots is the most completion channels of a device.
const slots = 32

// mapping is the memory of a device that C reads and writes. The owner of the device uses it, but
// for events, which its own goroutine does, and for each of the slots, which the one in
// CompChannel.Wait does.
type mapping struct {
	completions [batch]abi.WC
	sends       [batch]abi.SendWR
	receives    [batch]abi.RecvWR
	ops         [batch]abi.OpsWR
	sges        [batch][maxSGE]abi.SGE // of each request of a batch
	inline      [batch][maxInline]byte // payload of each
	tm          [batch]abi.WCTMInfo    // beside completions, of a queue with tag information
	pollAttr    abi.PollCQAttr
	bad         uintptr // the request that was refused
	count       int32   // of the list of devices
	device      abi.DeviceAttrEx
	port        abi.PortAttr
	gid         abi.GIDEntry
	qp          abi.QPAttr
	qpInit      abi.QPInitAttr
	srq         abi.SRQInitAttr
	srqEx       abi.SRQInitAttrEx
	srqNum      uint32
	cqEx        abi.CQInitAttrEx
	event       abi.AsyncEvent
	slots       [slots]channelSlot
}

// channelSlot is where ibv_get_cq_event writes.
type channelSlot struct{ cq, context uintptr }

const mappingSize = int(unsafe.Sizeof(mapping{}))

func newMapping() (*mapping, error) {
	all, err := mapMemory(mappingSize)
	if err != nil {
		return nil, fail("mmap", errnoOf(err), "memory for requests")
	}
	return (*mapping)(unsafe.Pointer(&all[0])), nil
}

func (m *mapping) free() error { return unmap(unsafe.Slice((*byte)(unsafe.Pointer(m)), mappingSize)) }

// Operations of abi.Context.Op.
const (
	queryPort     = unsafe.Offsetof(abi.VerbsContext{}.QueryPort)
	queryDeviceEx = unsafe.Offsetof(abi.VerbsContext{}.QueryDeviceEx)
	postSRQOps    = unsafe.Offsetof(abi.VerbsContext{}.PostSRQOps)
	createCQEx    = unsafe.Offsetof(abi.VerbsContext{}.CreateCQEx)
	getSRQNum     = unsafe.Offsetof(abi.VerbsContext{}.GetSRQNum)
	createSRQEx   = unsafe.Offsetof(abi.VerbsContext{}.CreateSRQEx)
)

// at is the object that C has at p.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// addr is the address of what p points to: memory of a mapping, or pinned.
func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// start is the address of the first byte of b, which is pinned, or lies in a mapping.
func start(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// pointers is an array of n pointers that C has at p.
func pointers(p uintptr, n int32) []uintptr { return unsafe.Slice(at[uintptr](p), n) }

// sizeof is the size of what p points to.
func sizeof[T any](*T) uintptr { var t T; return unsafe.Sizeof(t) }

// index is which of the n requests, that begin at first, lies at p: 0 where none does.
func index[T any](first *T, n int, p uintptr) int {
	if i := (p - addr(first)) / sizeof(first); i < uintptr(n) {
		return int(i)
	}
	return 0
}

// text is what a C string in b says.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

package ibverbs

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// extended polls a completion queue with tag information, in one crossing: by a list of steps, the
// same for each completion, and one more that ends the poll.
type extended struct {
	steps []ccall.Step
	end   ccall.Step
}

// Steps of a completion. The first is a check, which ends the list where there is no completion.
const (
	stepNext = iota // start_poll, or next_poll
	stepStatus
	stepWRID
	stepOpcode
	stepVendorErr
	stepByteLen
	stepQPNum
	stepFlags
	stepImm
	stepTM
	stepsEach
)

// newExtended makes the steps for a struct ibv_cq_ex.
func newExtended(m *mapping, obj uintptr) *extended {
	cq := at[abi.CQEx](obj)
	x := &extended{steps: make([]ccall.Step, batch*stepsEach), end: ccall.Step{Addr: cq.EndPoll, Args: [3]uintptr{obj}}}
	for i := range batch {
		s := x.steps[i*stepsEach:]
		s[stepNext] = ccall.Step{Kind: ccall.StepCheck, Addr: cq.NextPoll}
		s[stepStatus] = ccall.Step{Kind: ccall.StepLoad, Addr: addr(&cq.CompMask)} // and the status behind it
		s[stepWRID] = ccall.Step{Kind: ccall.StepLoad, Addr: addr(&cq.WRID)}
		for k, read := range map[int]uintptr{stepOpcode: cq.ReadOpcode, stepVendorErr: cq.ReadVendorErr, stepByteLen: cq.ReadByteLen,
			stepQPNum: cq.ReadQPNum, stepFlags: cq.ReadWCFlags, stepImm: cq.ReadImmData, stepTM: cq.ReadTMInfo} {
			s[k] = ccall.Step{Kind: ccall.StepCall, Addr: read}
		}
		for k := range stepsEach {
			s[k].Args[0] = obj
		}
		s[stepTM].Args[1] = addr(&m.tm[i])
	}
	x.steps[stepNext].Addr, x.steps[stepNext].Args[1] = cq.StartPoll, addr(&m.pollAttr)
	return x
}

// poll polls up to most completions into the mapping of p; an error may come with some. After a
// start_poll that fails there is no end_poll, since it holds nothing; after one that succeeds there
// is, whatever next_poll returns.
func (x *extended) poll(p *port, most int) (n int, err error) {
	n = ccall.Run(x.steps[:most*stepsEach], &x.end) / stepsEach
	if n < most {
		if ret := int32(x.steps[n*stepsEach+stepNext].Ret); ret != int32(syscall.ENOENT) {
			err = p.errOverrun()
		}
	}
	for i := range n {
		s := x.steps[i*stepsEach:][:stepsEach]
		p.mem.completions[i] = abi.WC{WRID: uint64(s[stepWRID].Ret), Status: uint32(s[stepStatus].Ret >> 32), Opcode: uint32(s[stepOpcode].Ret),
			VendorErr: uint32(s[stepVendorErr].Ret), ByteLen: uint32(s[stepByteLen].Ret), ImmData: uint32(s[stepImm].Ret),
			QPNum: uint32(s[stepQPNum].Ret), WCFlags: uint32(s[stepFlags].Ret)}
	}
	return n, err
}

// readFields are what is read of completions with tag information, beside what always is.
const readFields = abi.WCExWithByteLen | abi.WCExWithImm | abi.WCExWithQPNum | uint64(verbs.WCExWithTMInfo)

// createCQEx makes a completion queue with tag information.
func (p *port) createCQEx(cqe int, channel uintptr) (uintptr, error) {
	a := &p.mem.cqEx
	*a = abi.CQInitAttrEx{CQE: uint32(cqe), Channel: channel, WCFlags: readFields}
	obj, err := object("create_cq_ex", p.context().Op(createCQEx), p.ctx, addr(a))
	return obj, p.named(err, fmt.Sprintf("a queue of %d completions with tag information", cqe))
}

package ibverbs

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// PostSend posts up to 32 requests in one call.
func (q *queuePair) PostSend(wr *verbs.SendWR) (*verbs.SendWR, error) {
	const op = "post_send"
	if q.obj == 0 || q.state < verbs.QPSRTS {
		return wr, fail(op, syscall.EINVAL, fmt.Sprintf("the queue pair is destroyed, or in %v, which is before RTS", q.state))
	}
	m := q.d.mem
	for wr != nil {
		first, n := wr, 0
		var fault error
		for ; wr != nil && n < batch; wr, n = wr.Next, n+1 {
			if fault = q.fill(m, n, wr); fault != nil {
				break
			}
		}
		if n > 0 {
			m.sends[n-1].Next = 0
			if errno := m.call(&q.send); errno != 0 {
				for range index(&m.sends[0], n, m.bad) {
					first = first.Next
				}
				return first, q.d.named(fail(op, errno, ""), fmt.Sprintf("queue pair %d", q.num))
			}
		}
		if fault != nil {
			return wr, fault
		}
	}
	return nil, nil
}

// call posts what was filled.
func (m *mapping) call(post *ccall.Call) syscall.Errno {
	m.bad = 0 // a provider may not write it
	post.Do()
	errno := int32(post.Ret)
	return syscall.Errno(max(errno, -errno))
}

// doable marks an opcode that this device does, beside the flags that may go with it.
const doable = 1 << 32

// sendable has, by opcode, what a request is checked by: the flags that may go with it.
var sendable = func() (t [16]uint64) {
	for _, op := range []verbs.SendOpcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMARead} {
		t[op] = doable
		for flag := verbs.SendFlags(1); flag != 0; flag <<= 1 {
			if verbs.CheckSend(verbs.QPTRC, op, flag) == nil {
				t[op] |= uint64(flag)
			}
		}
	}
	return t
}()

// fill makes request i of the batch, but for the end of the chain, or says why the device must not
// see it. It sets each field that there is: an assignment of the whole makes it elsewhere first,
// and copies that too soon for the processor.
func (q *queuePair) fill(m *mapping, i int, wr *verbs.SendWR) error {
	if wr.Opcode >= verbs.SendOpcode(len(sendable)) || (uint64(wr.Flags)|doable)&^sendable[wr.Opcode] != 0 {
		return errNotSendable(wr)
	}
	if len(wr.SGList) > int(q.init.Cap.MaxSendSGE) {
		return fail("post_send", syscall.EINVAL, fmt.Sprintf("%d entries: the queue pair has %d", len(wr.SGList), q.init.Cap.MaxSendSGE))
	}
	w := &m.sends[i]
	w.WRID, w.Next, w.Opcode, w.SendFlags, w.ImmData = wr.WRID, addr(w)+sizeof(w), uint32(wr.Opcode), uint32(wr.Flags), 0
	w.RemoteAddr, w.RKey = wr.RemoteAddr, wr.RKey
	if wr.Opcode == verbs.WRSendWithImm || wr.Opcode == verbs.WRRDMAWriteWithImm {
		w.ImmData = hostOrder(wr.Imm)
	}
	if wr.Flags&verbs.SendInline == 0 {
		var total uint64
		w.SGList, w.NumSGE, total = entries(m.sges[i], wr.SGList)
		if total > q.d.attr.MaxMsgSize {
			return fail("post_send", syscall.EINVAL, fmt.Sprintf("a message of %d bytes: the device has %d", total, q.d.attr.MaxMsgSize))
		}
		return nil
	}
	payload := m.inline[i][:q.init.Cap.MaxInlineData]
	n := gather(payload, wr.SGList)
	if n < 0 {
		return errInline(wr, len(payload))
	}
	e := &m.sges[i][0]
	e.Addr, e.Length, e.LKey = uint64(start(payload)), uint32(n), 0
	w.SGList, w.NumSGE = addr(e), int32(min(n, 1))
	return nil
}

// errNotSendable says what is wrong with the opcode or the flags of a request.
func errNotSendable(wr *verbs.SendWR) error {
	if err := verbs.CheckSend(verbs.QPTRC, wr.Opcode, wr.Flags); err != nil {
		return err
	}
	return fail("post_send", syscall.EOPNOTSUPP, fmt.Sprintf("this device does not do %v", wr.Opcode))
}

func errInline(wr *verbs.SendWR, most int) error {
	total := 0
	for i := range wr.SGList {
		total += len(wr.SGList[i].Data)
	}
	return fail("post_send", syscall.EINVAL, fmt.Sprintf("%d bytes inline: the queue pair has %d", total, most))
}

// gather copies the bytes of a list, and tells how many there are; below 0: too many.
// It is not inlined: what else its caller has would be saved around each copy.
//
//go:noinline
func gather(to []byte, list []verbs.SGE) int {
	out := to[:0]
	for i := range list {
		data := list[i].Data
		if len(data) > len(to)-len(out) {
			return -1
		}
		out = append(out, data...)
	}
	return len(out)
}

// entries makes the list of a request, and tells how many bytes it has. Entries of no bytes are
// left out: to some devices a length of 0 is 2^31.
func entries(out []abi.SGE, list []verbs.SGE) (first uintptr, n int32, total uint64) {
	for j := range list {
		if data := list[j].Data; len(data) > 0 {
			e := &out[n]
			e.Addr, e.Length, e.LKey = uint64(start(data)), uint32(len(data)), list[j].LKey
			total += uint64(len(data))
			n++
		}
	}
	if n > 0 {
		first = addr(&out[0])
	}
	return first, n, total
}

// PostRecv posts to the queue pair's own queue.
func (q *queuePair) PostRecv(wr *verbs.RecvWR) (*verbs.RecvWR, error) {
	const op = "post_recv"
	switch {
	case q.obj == 0 || q.state == verbs.QPSReset:
		return wr, fail(op, syscall.EINVAL, "the queue pair is destroyed, or in RESET")
	case q.init.SRQ != nil:
		return wr, fail(op, syscall.EINVAL, "the queue pair has an SRQ")
	}
	return q.d.postReceives(op, &q.recv, int(q.init.Cap.MaxRecvSGE), wr)
}

// postReceives posts up to 32 receives in one call, whose lists have at most so many entries.
func (d *device) postReceives(op string, post *ccall.Call, most int, wr *verbs.RecvWR) (*verbs.RecvWR, error) {
	m := d.mem
	for wr != nil {
		first, n := wr, 0
		for ; wr != nil && n < batch && len(wr.SGList) <= most; wr, n = wr.Next, n+1 {
			w := &m.receives[n]
			w.WRID, w.Next = wr.WRID, addr(w)+sizeof(w)
			w.SGList, w.NumSGE, _ = entries(m.sges[n], wr.SGList)
		}
		if n > 0 {
			m.receives[n-1].Next = 0
			if errno := m.call(post); errno != 0 {
				for range index(&m.receives[0], n, m.bad) {
					first = first.Next
				}
				return first, d.named(fail(op, errno, ""), "")
			}
		}
		if wr != nil && len(wr.SGList) > most {
			return wr, fail(op, syscall.EINVAL, fmt.Sprintf("%d entries: the queue has %d", len(wr.SGList), most))
		}
	}
	return nil, nil
}

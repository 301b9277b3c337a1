package ibverbs

import (
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
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
			if fault = q.check(wr); fault != nil {
				break
			}
			q.fill(n, wr)
			if n > 0 {
				m.sends[n-1].Next = addr(&m.sends[n])
			}
		}
		if n > 0 {
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

// check refuses what the device must not see.
func (q *queuePair) check(wr *verbs.SendWR) error {
	const op = "post_send"
	if err := verbs.CheckSend(verbs.QPTRC, wr.Opcode, wr.Flags); err != nil {
		return err
	}
	switch wr.Opcode {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRLocalInv, verbs.WRBindMW, verbs.WRSendWithInv:
		return fail(op, syscall.EOPNOTSUPP, fmt.Sprintf("this device does not do %v", wr.Opcode))
	}
	if len(wr.SGList) > int(q.init.Cap.MaxSendSGE) {
		return fail(op, syscall.EINVAL, fmt.Sprintf("%d entries: the queue pair has %d", len(wr.SGList), q.init.Cap.MaxSendSGE))
	}
	var total uint64
	for i := range wr.SGList {
		total += uint64(len(wr.SGList[i].Data))
	}
	switch {
	case wr.Flags&verbs.SendInline != 0 && total > uint64(q.init.Cap.MaxInlineData):
		return fail(op, syscall.EINVAL, fmt.Sprintf("%d bytes inline: the queue pair has %d", total, q.init.Cap.MaxInlineData))
	case total > q.d.attr.MaxMsgSize:
		return fail(op, syscall.EINVAL, fmt.Sprintf("a message of %d bytes: the device has %d", total, q.d.attr.MaxMsgSize))
	}
	return nil
}

// fill makes request i of the batch. It sets each field that there is: an assignment of the whole
// makes it elsewhere first, and copies that too soon for the processor.
func (q *queuePair) fill(i int, wr *verbs.SendWR) {
	m := q.d.mem
	w := &m.sends[i]
	w.WRID, w.Next, w.Opcode, w.SendFlags, w.ImmData = wr.WRID, 0, uint32(wr.Opcode), uint32(wr.Flags), 0
	w.RemoteAddr, w.RKey = wr.RemoteAddr, wr.RKey
	w.SGList, w.NumSGE = 0, 0
	if wr.Opcode == verbs.WRSendWithImm || wr.Opcode == verbs.WRRDMAWriteWithImm {
		w.ImmData = hostOrder(wr.Imm)
	}
	if wr.Flags&verbs.SendInline == 0 {
		w.SGList, w.NumSGE = m.entries(i, q.d.attr.MaxSGE, wr.SGList)
		return
	}
	room := q.d.attr.MaxInline
	payload := m.inline[i*room : i*room : (i+1)*room]
	for j := range wr.SGList {
		payload = append(payload, wr.SGList[j].Data...)
	}
	if len(payload) > 0 {
		e := &m.sges[i*q.d.attr.MaxSGE]
		e.Addr, e.Length, e.LKey = uint64(start(payload)), uint32(len(payload)), 0
		w.SGList, w.NumSGE = addr(e), 1
	}
}

// entries makes the list of request i of the batch. Entries of no bytes are left out: to some
// devices a length of 0 is 2^31.
func (m *mapping) entries(i, most int, list []verbs.SGE) (first uintptr, n int32) {
	out := m.sges[i*most : (i+1)*most]
	for j := range list {
		if s := &list[j]; len(s.Data) > 0 {
			e := &out[n]
			e.Addr, e.Length, e.LKey = uint64(start(s.Data)), uint32(len(s.Data)), s.LKey
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return addr(&out[0]), n
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
			w.WRID, w.Next = wr.WRID, 0
			w.SGList, w.NumSGE = m.entries(n, d.attr.MaxSGE, wr.SGList)
			if n > 0 {
				m.receives[n-1].Next = addr(w)
			}
		}
		if n > 0 {
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

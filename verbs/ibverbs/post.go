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
	if q.obj == 0 || q.state < verbs.QPSRTS {
		return wr, fail("post_send", syscall.EINVAL, fmt.Sprintf("the queue pair is destroyed, or in %v, which is before RTS", q.state))
	}
	m := q.d.mem
	for wr != nil {
		n, rest, err := q.fill(m, wr)
		if n == 0 {
			return rest, err
		}
		if !m.posted(&q.send) {
			for range index(&m.sends[0], n, m.bad) {
				wr = wr.Next
			}
			return wr, q.d.named(refused("post_send", &q.send), fmt.Sprintf("queue pair %d", q.num))
		}
		if err != nil {
			return rest, err
		}
		wr = rest
	}
	return nil, nil
}

// posted posts what was filled, and reports whether the device has taken all of it.
func (m *mapping) posted(post *ccall.Call) bool {
	m.bad = 0 // a provider may not write it
	post.Do()
	return int32(post.Ret) == 0
}

// refused is the error of a call that posts.
func refused(op string, post *ccall.Call) error {
	errno := int32(post.Ret)
	return fail(op, syscall.Errno(max(errno, -errno)), "")
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

// sendable reports whether the device takes requests with opcode, flags and entries of this one.
func (q *queuePair) sendable(wr *verbs.SendWR) bool {
	return wr.Opcode < verbs.SendOpcode(len(sendable)) && (uint64(wr.Flags)|doable)&^sendable[wr.Opcode] == 0 &&
		len(wr.SGList) <= int(q.init.Cap.MaxSendSGE)
}

// fill makes the requests of a chain, up to a batch of them, and returns how many, and the one
// behind them; err says why the device must not see that. It sets each field that there is: an
// assignment of the whole makes it elsewhere first, and copies that too soon for the processor.
func (q *queuePair) fill(m *mapping, wr *verbs.SendWR) (n int, rest *verbs.SendWR, err error) {
	for ; wr != nil && n < batch; wr, n = wr.Next, n+1 {
		if !q.sendable(wr) {
			err = q.errNotSendable(wr)
			break
		}
		w, op, flags := &m.sends[n], wr.Opcode, wr.Flags
		w.WRID, w.Next, w.Opcode, w.SendFlags, w.ImmData = wr.WRID, addr(w)+sizeof(w), uint32(op), uint32(flags), 0
		w.RemoteAddr, w.RKey = wr.RemoteAddr, wr.RKey
		if op == verbs.WRSendWithImm || op == verbs.WRRDMAWriteWithImm {
			w.ImmData = hostOrder(wr.Imm)
		}
		if flags&verbs.SendInline != 0 {
			payload, e := &m.inline[n], &m.sges[n][0]
			size := gather(payload[:q.init.Cap.MaxInlineData], wr.SGList)
			if size < 0 {
				err = errInline(wr, q.init.Cap.MaxInlineData)
				break
			}
			e.Addr, e.Length, e.LKey = uint64(addr(payload)), uint32(size), 0
			w.SGList, w.NumSGE = addr(e), int32(min(size, 1))
			continue
		}
		var total uint64
		w.SGList, w.NumSGE, total = entries(&m.sges[n], wr.SGList)
		if total > q.d.attr.MaxMsgSize {
			err = fail("post_send", syscall.EINVAL, fmt.Sprintf("a message of %d bytes: the device has %d", total, q.d.attr.MaxMsgSize))
			break
		}
	}
	if n > 0 {
		m.sends[n-1].Next = 0
	}
	return n, wr, err
}

// errNotSendable says what is wrong with the opcode, the flags or the entries of a request.
func (q *queuePair) errNotSendable(wr *verbs.SendWR) error {
	if err := verbs.CheckSend(verbs.QPTRC, wr.Opcode, wr.Flags); err != nil {
		return err
	}
	if most := q.init.Cap.MaxSendSGE; len(wr.SGList) > int(most) {
		return fail("post_send", syscall.EINVAL, fmt.Sprintf("%d entries: the queue pair has %d", len(wr.SGList), most))
	}
	return fail("post_send", syscall.EOPNOTSUPP, fmt.Sprintf("this device does not do %v", wr.Opcode))
}

func errInline(wr *verbs.SendWR, most uint32) error {
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
func entries(out *[maxSGE]abi.SGE, list []verbs.SGE) (first uintptr, n int32, total uint64) {
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
		n, rest := m.fillReceives(wr, most)
		if n > 0 && !m.posted(post) {
			for range index(&m.receives[0], n, m.bad) {
				wr = wr.Next
			}
			return wr, d.named(refused(op, post), "")
		}
		if rest != nil && len(rest.SGList) > most {
			return rest, fail(op, syscall.EINVAL, fmt.Sprintf("%d entries: the queue has %d", len(rest.SGList), most))
		}
		wr = rest
	}
	return nil, nil
}

// fillReceives makes the receives of a chain, as queuePair.fill does requests.
func (m *mapping) fillReceives(wr *verbs.RecvWR, most int) (n int, rest *verbs.RecvWR) {
	for ; wr != nil && n < batch && len(wr.SGList) <= most; wr, n = wr.Next, n+1 {
		w := &m.receives[n]
		w.WRID, w.Next = wr.WRID, addr(w)+sizeof(w)
		w.SGList, w.NumSGE, _ = entries(&m.sges[n], wr.SGList)
	}
	if n > 0 {
		m.receives[n-1].Next = 0
	}
	return n, wr
}

package verbstest

import (
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/verbs"
)

// This file has the rules of TMO 8.2 on opcodes, flags and events.

// testOpcodeTable: the opcode-by-type table of ibv_post_send(3). A queue pair refuses opcodes that
// its type does not support, in every state; on RC a device may omit atomics, memory windows and
// invalidation.
func testOpcodeTable(e *env, a, b *node) {
	carries := map[verbs.QPType]string{ // by opcode 0 to 15
		verbs.QPTUD: "..xx......x.....", verbs.QPTUC: "xxxx...xxx......", verbs.QPTRC: "xxxxxxxxxx......",
		verbs.QPTXRCSend: "xxxxxxxxxx......", verbs.QPTRawPacket: "..x.......x.....",
	}
	for typ, row := range carries {
		qp, err := a.pd.CreateQP(&verbs.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: typ, Cap: verbs.QPCap{MaxSendWR: 4}})
		if err != nil {
			e.errno(err, syscall.EOPNOTSUPP)
			if typ == verbs.QPTRC {
				e.t.Fatal("no RC")
			}
			continue
		}
		for op := range verbs.SendOpcode(17) {
			if op < 16 && row[op] == 'x' {
				continue
			}
			wr := &verbs.SendWR{Opcode: op}
			refuse(e, qp.PostSend, wr, wr, syscall.EINVAL)
		}
		e.ok(qp.Destroy())
	}
	mr, buf := a.mem(8)
	rmr, _ := b.mem(8)
	for op := range verbs.SendOpcode(16) {
		qa, qb := e.connect(a, b, qpConf{}, qpConf{})
		b.recv(qb, 1, nil)
		wr := rdma(op, uint64(op), sge(mr, buf), rmr, 0)
		if op == verbs.WRSend || op == verbs.WRSendWithImm || op == verbs.WRSendWithInv {
			wr.SGList, wr.Imm = nil, rmr.RKey()
		}
		_, err := qa.PostSend(&wr)
		switch optional := op >= verbs.WRAtomicCmpAndSwp; {
		case carries[verbs.QPTRC][op] == '.':
			e.errno(err, syscall.EINVAL)
		case err != nil && optional:
			e.errno(err, syscall.EOPNOTSUPP)
		default:
			e.ok(err)
			a.want(uint64(op), verbs.WCSuccess)
		}
		e.settle()
		b.got = nil
	}
}

// testSendFlags: which flags are legal with which opcode on RC; unknown ones are legal with none.
func testSendFlags(e *env, a, b *node, qa, _ verbs.QP) {
	const (
		send, imm, write, writeImm = verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm
		read, swap, add            = verbs.WRRDMARead, verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd
	)
	var all []verbs.SendOpcode
	for op := range verbs.SendOpcode(20) {
		all = append(all, op)
	}
	for _, c := range []struct {
		flag verbs.SendFlags
		bad  []verbs.SendOpcode
	}{
		{verbs.SendSolicited, []verbs.SendOpcode{write, read, swap, add}},
		{verbs.SendInline, []verbs.SendOpcode{read, swap, add}},
		{verbs.SendIPCsum, []verbs.SendOpcode{send, imm, write, writeImm, read, swap, add}},
		{1 << 5, all},
		{1 << 20, all},
		{1 << 31, all},
	} {
		for _, op := range c.bad {
			wr := &verbs.SendWR{Opcode: op, Flags: c.flag}
			refuse(e, qa.PostSend, wr, wr, syscall.EINVAL)
		}
	}
}

// testSolicited: a receiver armed for solicited events is woken by a solicited message, even if the
// device works for another CQ meanwhile, and after unsolicited messages, which leave the CQ armed.
// Spurious wake-ups on arrivals, which are legal, are consumed first: the event remains.
func testSolicited(e *env, a, b *node) {
	ch, cq := b.sleepyCQ(e)
	qa, qb := e.connect(a, b, qpConf{}, qpConf{cq: cq})
	awake := func() { ch.Wake(); e.ok(ch.Wait()) }
	for i := range uint64(20) {
		e.ok(cq.Arm(true))
		b.pollCQ(cq)
		for range i % 3 {
			b.recv(qb, 100, nil)
			a.send(qa, inline(100, verbs.SendSignaled, nil))
			a.want(100, verbs.WCSuccess) // it has arrived, but its CQ was not polled
		}
		b.recv(qb, i, nil)
		a.send(qa, inline(i, verbs.SendSignaled|verbs.SendSolicited, nil))
		awake()
		a.want(i, verbs.WCSuccess)
		woken := make(chan error, 1)
		go func() { woken <- ch.Wait() }()
		select {
		case err := <-woken:
			e.ok(err)
		case <-time.After(patience):
			ch.Wake()
			e.t.Fatal("the receiver sleeps on")
		}
		e.until("the messages", func() bool { b.pollCQ(cq); return len(b.got) > int(i%3) })
		for range i % 3 {
			b.want(100, verbs.WCSuccess)
		}
		b.want(i, verbs.WCSuccess)
	}
}

package tmsrq

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
)

// untagged handles what came into a buffer of the ring: unexpected messages, and those that are
// never matched.
func (t *Transport) untagged(wc *verbs.WC) {
	t.ring.Took(wc.WRID)
	if wc.Status != verbs.WCSuccess {
		t.Failed(wc)
		t.ring.Handled(wc.WRID)
		t.repost(wc.WRID) // a receive that failed has used up its buffer like any other
		return
	}
	msg := wc.Data
	if msg == nil {
		msg = t.ring.Filled(wc.WRID, wc.ByteLen)
	}
	if invariant.Enabled && wc.Data == nil {
		t.checkClass(wc, msg)
	}
	rank := t.Rank(wc.QPNum)
	var err error
	switch {
	case rank < 0 || t.Deaf(rank):
		t.skip(wc)
	default:
		if err = t.deliver(rank, wc, msg); err != nil {
			t.skip(wc)
			t.Violation(rank, err)
		}
	}
	t.ring.Handled(wc.WRID)
	t.repost(wc.WRID) // not before the message was handled (V15)
}

// skip counts a message that the sink never sees, if the device has counted it: dropping it is
// handling it.
func (t *Transport) skip(wc *verbs.WC) {
	if counted(wc) {
		t.skipped++
	}
}

// counted says whether the device has counted a message (TMO 5.1). Its header is no proof of that:
// when it is lent, it lies where the peer can still write to it.
func counted(wc *verbs.WC) bool { return wc.Opcode == verbs.WCTMRecv || wc.Opcode == verbs.WCRecv }

// tagged says whether messages of this opcode are matched, and counted if they are unexpected (TMO
// 2.3).
func tagged(op verbs.TMHOpcode) bool { return op == verbs.TMHEager || op == verbs.TMHRndv }

func (t *Transport) repost(slot uint64) {
	if err := t.ring.Done(slot); err != nil {
		t.breaks(err)
	}
}

// deliver gives a message to the sink. The error says how it breaks the protocol.
func (t *Transport) deliver(rank int, wc *verbs.WC, msg []byte) error {
	if wc.Opcode == verbs.WCRecvRDMAWithImm {
		return errors.New("a write with immediate data")
	}
	op := rc.Opcode(msg)
	if t.cfg.MaxTags > 0 && counted(wc) != tagged(op) {
		return fmt.Errorf("a message whose opcode is %d now, and was another when it came", op)
	}
	if wc.Flags&verbs.WCFlagWithImm == 0 {
		return rc.Deliver(t.sink, rank, op, msg, t.cfg.MaxEager, &t.hdr)
	}
	if wc.Imm != rtsMark || len(msg) < verbs.TMHSize || op != verbs.TMHEager {
		return fmt.Errorf("a message of %d bytes with immediate data %#x", len(msg), wc.Imm)
	}
	if err := parseRTS(msg[verbs.TMHSize:], verbs.ParseTMH(msg).Tag, rank, &t.hdr); err != nil {
		return err
	}
	t.sink.Rndv(rank, &t.hdr)
	return nil
}

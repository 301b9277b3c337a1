package tmsrq

import (
	"fmt"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// untagged handles what came into a buffer of the SRQ itself: unexpected messages, and those that
// are never matched.
func (t *Transport) untagged(wc *verbs.WC) (again bool) {
	rank, msg := t.Received(wc)
	switch {
	case wc.Status != verbs.WCSuccess: // the device has counted nothing
	case rank < 0:
		t.skip(wc)
	default:
		t.checkClass(wc, msg)
		if err := t.deliver(rank, wc, msg); err != nil {
			t.skip(wc)
			t.ProtocolError(rank, err)
		}
	}
	return t.Return(wc) // not before the message was handled (V15)
}

// skip counts a message that the sink is not given, if the device has counted it.
func (t *Transport) skip(wc *verbs.WC) {
	if counted(wc) {
		t.skipped++
	}
}

// counted reports whether the device has counted a message (TMO 5.1). The header of the message
// does not prove it: if the message is lent, the peer may still write to it.
func counted(wc *verbs.WC) bool { return wc.Opcode == verbs.WCTMRecv || wc.Opcode == verbs.WCRecv }

// tagged reports whether messages with this opcode are matched, and counted if they are unexpected
// (TMO 2.3).
func tagged(op verbs.TMHOpcode) bool { return op == verbs.TMHEager || op == verbs.TMHRndv }

// deliver calls the method of the sink that a message is for. The error says how the message breaks
// the protocol; the sink was not called then.
func (t *Transport) deliver(rank int, wc *verbs.WC, msg []byte) error {
	op := format.Opcode(msg)
	if t.cfg.MaxTags > 0 && counted(wc) != tagged(op) {
		return fmt.Errorf("a message whose opcode is %d now, and was another when it came", op)
	}
	if wc.Flags&verbs.WCFlagWithImm == 0 {
		return format.Deliver(t.sink, rank, op, msg, t.cfg.MaxEager, &t.hdr)
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

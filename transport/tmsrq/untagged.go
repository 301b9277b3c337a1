package tmsrq

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
)

// untagged handles what came into a buffer of the ring: unexpected messages, and those that are never matched.
func (t *Transport) untagged(wc *verbs.WC) {
	if invariant.Enabled {
		t.ring.Took(wc.WRID)
	}
	if wc.Status != verbs.WCSuccess {
		t.Failed(wc)
		if invariant.Enabled {
			t.ring.Handled(wc.WRID)
		}
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
		t.skip(wc, msg)
	default:
		if err = t.deliver(rank, wc, msg); err != nil {
			t.skip(wc, msg)
			t.Violation(rank, err)
		}
	}
	if invariant.Enabled {
		t.ring.Handled(wc.WRID)
	}
	t.repost(wc.WRID) // not before the message was handled (V15)
}

// skip counts a message that the sink never sees, if it is one that the device counts (TMO 5.1): dropping it is handling it.
func (t *Transport) skip(wc *verbs.WC, msg []byte) {
	if wc.Opcode == verbs.WCTMNoTag || len(msg) == 0 {
		return
	}
	if op := verbs.TMHOpcode(msg[0]); op == verbs.TMHEager || op == verbs.TMHRndv {
		t.skipped++
	}
}

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
	if wc.Flags&verbs.WCFlagWithImm == 0 {
		return rc.Deliver(t.sink, rank, msg, t.cfg.MaxEager, &t.hdr)
	}
	if wc.Imm != rtsMark || len(msg) < verbs.TMHSize || msg[0] != byte(verbs.TMHEager) {
		return fmt.Errorf("a message of %d bytes with immediate data %#x", len(msg), wc.Imm)
	}
	if err := parseRTS(msg[verbs.TMHSize:], verbs.ParseTMH(msg).Tag, rank, &t.hdr); err != nil {
		return err
	}
	t.sink.Rndv(rank, &t.hdr)
	return nil
}

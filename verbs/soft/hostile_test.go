package soft

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// fakeLink takes everything and forgets it; if it is full it has no room.
type fakeLink struct{ closed, accused, full bool }

func (l *fakeLink) Send(*wire.Header, []byte, []byte) bool { return true }
func (l *fakeLink) Peer() *wire.Address                    { return &wire.Address{} }
func (l *fakeLink) MaxPayload() int                        { return 4096 }
func (l *fakeLink) MaxReadPayload() int                    { return 4096 }
func (l *fakeLink) HasRoom(int) bool                       { return !l.full }
func (l *fakeLink) Memory() wire.RemoteMemory              { return nil }
func (l *fakeLink) Close()                                 { l.closed = true }
func (l *fakeLink) Accuse()                                { l.closed, l.accused = true, true }

// hostileQP is a QP in RTS whose peer is l, with everything posted.
func hostileQP(t *testing.T, d *Device, pd verbs.PD, cq verbs.CQ, mr verbs.MR, buf []byte, l wire.Link) *queuePair {
	v, err := pd.CreateQP(&verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxInlineData: 64}})
	if err != nil {
		t.Fatal(err)
	}
	q := v.(*queuePair)
	q.state, q.link, q.maxPay = verbs.QPSRTS, l, l.MaxPayload()
	q.attr = verbs.QPAttr{MaxRdAtomic: 4, MaxDestRdAtomic: 4, DestQPN: 9,
		AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic}
	q.responder.start(0)
	q.requester.start()
	list := []verbs.SGE{{Data: buf, LKey: mr.LKey()}}
	for i := range uint64(8) {
		_, err1 := q.PostRecv(&verbs.RecvWR{WRID: i, SGList: list})
		_, err2 := q.PostSend(&verbs.SendWR{WRID: i, Opcode: []verbs.SendOpcode{verbs.WRSend, verbs.WRRDMARead}[i%2],
			Flags: verbs.SendFlags(i/2%2) * verbs.SendSignaled, SGList: list})
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
	}
	return q
}

// TestHostilePackets feeds packets that are random where it hurts. Nothing may panic, memory
// outside the region stays as it is, and the books of the queues stay sound.
func TestHostilePackets(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	pd, _ := d.AllocPD()
	arena := make([]byte, 3*4096)
	buf := arena[4096:8192]
	mr, _ := pd.RegMR(buf, accessAll)
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(vs ...uint64) uint64 { return vs[rng.IntN(len(vs))] }
	payload := make([]byte, 5000)
	for i := range payload {
		payload[i] = 0xee
	}
	var wc [16]verbs.WC
	broken := 0
	for round := range 3000 {
		cq, _ := d.CreateCQ(verbs.CQInitAttr{CQE: 256})
		l := &fakeLink{}
		q := hostileQP(t, d, pd, cq, mr, buf, l)
		for range 20 {
			n := pick(0, 1, 8, 16, 64, 4096, 5000)
			h := wire.Header{
				Op: wire.Opcode(rng.IntN(12)), Flags: uint8(rng.IntN(64)), Status: uint8(pick(0, 1, 7, 10, 13, 200)),
				Length: uint32(pick(n, n, n, n, n+1)), QPN: uint32(pick(uint64(q.num), uint64(q.num), uint64(q.num), 0, 1<<24-1)),
				PSN: uint32(pick(0, 1, 2, 3, uint64(q.expect), uint64(q.rx.psn), 1<<32-1)), RKey: uint32(pick(uint64(mr.RKey()), uint64(mr.RKey()), 0, 5)),
				Addr:  pick(mr.Addr(), mr.Addr()+8, mr.Addr()+4090, mr.Addr()-1, 0, 64, 9, 1<<64-1),
				Total: pick(n, n, 2*n, q.rx.total, 4096, 1<<40, 1<<64-1), Imm: uint32(rng.IntN(3)),
			}
			_, _ = (*fromWire)(d).Receive(l, &h, payload[:n])
			_ = (*fromWire)(d).Place(l, &h)
			if h.PSN%2 == 0 {
				(*fromWire)(d).PlaceGone(l, &h)
			}
			d.pump()
			if q.posted-q.reclaimed > q.depth || q.sent-q.reclaimed > q.posted-q.reclaimed || q.rq.posted() > 16 {
				t.Fatalf("seed %d round %d: posted %d sent %d done %d reclaimed %d", seed, round, q.posted, q.sent, q.done, q.reclaimed)
			}
		}
		if l.closed {
			broken++
		}
		if l.closed != l.accused {
			t.Fatal("a link is closed, and its peer is not told why")
		}
		for n := 1; n > 0; {
			n, _ = verbstest.Poll(cq, wc[:])
		}
		for told, ok := d.PollTold(); ok; told, ok = d.PollTold() {
			if (told.Err == nil) != (len(told.Msg) > 0) || len(told.Msg) > verbs.MaxTell {
				t.Fatalf("seed %d round %d: told %+v", seed, round, told)
			}
		}
		if err := q.Destroy(); err != nil {
			t.Fatal(err)
		}
		if err := cq.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range arena {
		if b != 0 && (i < 4096 || i >= 8192) {
			t.Fatalf("byte %d outside the region was written", i)
		}
	}
	blamed := 0
	for ev, ok := d.PollAsync(); ok; ev, ok = d.PollAsync() {
		if errors.Is(ev.Err, verbs.ErrProtocol) {
			blamed++
		}
	}
	if broken == 0 || blamed == 0 {
		t.Error("no violation was found in any round")
	}
	if err := mr.Dereg(); err != nil {
		t.Error(err)
	}
	if err := pd.Dealloc(); err != nil {
		t.Error(err)
	}
}

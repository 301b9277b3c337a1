package jobtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Tags of a trial.
const (
	tagWatch p2p.Tag = iota
	tagGoOn
	tagAny
	tagEnd
	tagData
	tagLast // the end of a stream
	tagNext // whether there is another round
)

// phase is what the ranks do when the fault comes.
type phase string

const (
	joining    phase = "joining"
	connecting phase = "first connection"
	eager      phase = "eager"
	requested  phase = "requested"
	halfCopied phase = "half copied"
	finishing  phase = "FIN outstanding"
	heldUp     phase = "held up"
	canceling  phase = "cancel"
	agreeing   phase = "Dup and Split"
	leaving    phase = "Shutdown" // nothing follows, and there are no watches
	idle       phase = "idle"
)

// phases is one side of the matrix.
var phases = []phase{joining, connecting, eager, requested, halfCopied, finishing, heldUp, canceling, agreeing, leaving, idle}

// phasePlays is what each rank does: it says "there", and returns when all operations but the
// watches have ended.
var phasePlays = map[phase]func(*player, context.Context){
	joining:    (*player).rest,
	connecting: (*player).connect,
	eager:      streams(16, func(rng *rand.Rand) int { return rng.IntN(4096) >> rng.IntN(12) }),
	requested:  (*player).request,
	halfCopied: streams(2, func(rng *rand.Rand) int { return 4<<20 + rng.IntN(4<<20) }),
	finishing:  streams(16, func(rng *rand.Rand) int { return 33<<10 + rng.IntN(32<<10) }),
	heldUp:     (*player).holdUp,
	canceling:  (*player).cancel,
	agreeing:   (*player).agree,
	leaving:    (*player).shutDown,
	idle:       (*player).rest,
}

// over reports whether the test has said that the fault is over.
func (p *player) over() bool {
	select {
	case <-p.heard["over"]:
		return true
	default:
		return false
	}
}

// other is the other one of victim and partner.
func (p *player) other() int { return victim + partner - p.rank }

// settle waits for the end of an operation with a peer.
func (p *player) settle(ctx context.Context, peer int, r p2p.Request) (st p2p.Status, ok bool) {
	st, err := r.Wait(ctx)
	p.check(peer, err)
	p.onlyOnce(r)
	return st, err == nil
}

// rest has no operations but the watches.
func (p *player) rest(context.Context) {
	if p.cell.phase != joining {
		p.say("there")
	}
}

// connect sends the first messages between victim and partner, both ways.
func (p *player) connect(ctx context.Context) {
	p.say("there")
	<-p.heard["go"]
	if p.rank == server {
		return
	}
	var ins, outs []p2p.Request
	var bufs [][]byte
	for seq, size := range []int{8, 2000, 100_000} {
		out := make([]byte, size)
		fill(out, messageSeed(p.rank, seq))
		bufs = append(bufs, make([]byte, size))
		ins = append(ins, p.c.Irecv(p.other(), tagData, bufs[seq]))
		outs = append(outs, p.c.Isend(p.other(), tagData, out))
	}
	for seq, r := range ins {
		if st, ok := p.settle(ctx, p.other(), r); ok {
			p.checkData("first messages", p.other(), seq, st, bufs[seq])
		}
		p.settle(ctx, p.other(), outs[seq])
	}
}

// streams has victim and partner send each other messages, window of them at a time.
func streams(window int, size func(*rand.Rand) int) func(*player, context.Context) {
	return func(p *player, ctx context.Context) {
		if p.rank == server {
			p.say("there")
			return
		}
		var both sync.WaitGroup
		both.Go(func() { p.sendStream(ctx, window, size) })
		both.Go(func() { p.receiveStream(ctx, size) })
		both.Wait()
	}
}

// sendStream sends messages until the fault is over, and one more that says how many they were.
func (p *player) sendStream(ctx context.Context, window int, size func(*rand.Rand) int) {
	rng := rand.New(rand.NewPCG(p.seed, uint64(p.rank)))
	reqs, bufs := make([]p2p.Request, window), make([][]byte, window)
	for seq := 0; !p.over(); seq++ {
		at := seq % window
		if seq >= window {
			_, ok := p.settle(ctx, p.other(), reqs[at])
			if reqs[at] = (p2p.Request{}); !ok {
				break
			}
		}
		n := size(rng)
		if cap(bufs[at]) < n {
			bufs[at] = make([]byte, n)
		}
		bufs[at] = bufs[at][:n]
		fill(bufs[at], messageSeed(p.rank, seq))
		reqs[at] = p.c.Isend(p.other(), tagData, bufs[at])
	}
	for _, r := range reqs {
		if r != (p2p.Request{}) {
			p.settle(ctx, p.other(), r)
		}
	}
	p.check(p.other(), p.c.Send(ctx, p.other(), tagLast, nil))
}

// receiveStream receives them, and is there with the first one.
func (p *player) receiveStream(ctx context.Context, size func(*rand.Rand) int) {
	rng := rand.New(rand.NewPCG(p.seed, uint64(p.other())))
	buf := make([]byte, 8<<20)
	for seq := 0; ; seq++ {
		st, err := p.c.Recv(ctx, p.other(), p2p.AnyTag, buf)
		if seq == 0 {
			p.say("there")
		}
		if !p.check(p.other(), err) || err != nil || st.Tag == tagLast {
			return
		}
		if n := size(rng); int(st.Len) != n {
			p.problem("message %d has %d bytes, want %d", seq, st.Len, n)
		}
		p.checkData("stream", p.other(), seq, st, buf)
	}
}

// request has victim and partner know of a message of the other that they do not receive yet.
func (p *player) request(ctx context.Context) {
	if p.rank == server {
		p.say("there")
		return
	}
	out, in := make([]byte, 1<<20), make([]byte, 1<<20)
	fill(out, messageSeed(p.rank, 0))
	send := p.c.Isend(p.other(), tagData, out)
	_, err := p.c.Probe(ctx, p.other(), tagData)
	p.check(p.other(), err)
	p.say("there")
	p.pause(ctx)
	st, ok := p.settle(ctx, p.other(), p.c.Irecv(p.other(), tagData, in))
	if ok {
		p.checkData("requested message", p.other(), 0, st, in)
	}
	p.settle(ctx, p.other(), send)
}

// pause waits until the fault is over, or has cost this rank its peer.
func (p *player) pause(ctx context.Context) {
	if len(p.cell.loses(p.rank)) == 0 {
		<-p.heard["over"]
		return
	}
	for _, peer := range p.cell.loses(p.rank) {
		p.endWatch(ctx, peer)
	}
}

// holdUp has victim and partner hold each other's messages up.
func (p *player) holdUp(ctx context.Context) {
	if p.rank == server {
		p.say("there")
		return
	}
	const count = 300
	var sends []p2p.Request
	for seq := range count {
		out := make([]byte, 1000)
		fill(out, messageSeed(p.rank, seq))
		sends = append(sends, p.c.Isend(p.other(), tagData, out))
	}
	for p.w.Load().Metrics().HeldNow == 0 {
		if ctx.Err() != nil {
			p.problem("nothing is held up")
			break
		}
		time.Sleep(time.Millisecond)
	}
	p.say("there")
	p.pause(ctx)
	in := make([]byte, 1000)
	for seq := range count {
		st, ok := p.settle(ctx, p.other(), p.c.Irecv(p.other(), tagData, in))
		if !ok {
			break
		}
		p.checkData("held up", p.other(), seq, st, in)
	}
	for _, r := range sends {
		p.settle(ctx, p.other(), r)
	}
}

// cancel has victim and partner cancel sends and receives. What was sent and not cancelled is
// received, and nothing else.
func (p *player) cancel(ctx context.Context) {
	if p.rank == server {
		p.say("there")
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.cancelSends(ctx) })
	both.Go(func() { p.cancelReceives(ctx) })
	both.Wait()
}

func (p *player) cancelSends(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.seed, uint64(p.rank)))
	out := make([]byte, 300_000)
	sent := 0
	for !p.over() {
		n := 100 + rng.IntN(len(out)-100)
		fill(out[:n], messageSeed(p.rank, sent))
		r := p.c.Isend(p.other(), tagData, out[:n])
		time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
		r.Cancel()
		_, err := r.Wait(ctx)
		p.onlyOnce(r)
		if errors.Is(err, p2p.ErrCanceled) {
			continue
		}
		if !p.check(p.other(), err) || err != nil {
			break
		}
		sent++
	}
	fill(out[:8], messageSeed(p.rank, sent))
	p.check(p.other(), p.c.Send(ctx, p.other(), tagLast, out[:8]))
}

func (p *player) cancelReceives(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.seed, uint64(p.rank)+10))
	in := make([]byte, 300_000)
	for received, first := 0, true; ; {
		r := p.c.Irecv(p.other(), p2p.AnyTag, in)
		if first {
			p.say("there")
			first = false
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
		r.Cancel()
		st, err := r.Wait(ctx)
		p.onlyOnce(r)
		if errors.Is(err, p2p.ErrCanceled) {
			continue
		}
		if !p.check(p.other(), err) || err != nil {
			return
		}
		p.checkData("uncancelled", p.other(), received, st, in)
		if st.Tag == tagLast {
			return
		}
		received++
	}
}

// agreeLimit is how long a rank waits for others in Dup and Split that it has not lost, but that
// have lost each other.
const agreeLimit = 3 * time.Second

// agree has all ranks make and close Comms, until rank 0 hears that the fault is over.
func (p *player) agree(ctx context.Context) {
	c, err := p.c.Dup(ctx)
	p.check(-1, err)
	p.say("there")
	for more := err == nil; more; {
		more = p.makeComms(ctx, c)
	}
}

// makeComms makes two Comms and says whether there is another round.
func (p *player) makeComms(ctx context.Context, c *p2p.Comm) (more bool) {
	short := ctx
	if p.cell.outcome() == reset && p.rank == server {
		var cancel context.CancelFunc
		short, cancel = context.WithTimeout(ctx, agreeLimit)
		defer cancel()
	}
	d, err := c.Dup(short)
	if err == nil {
		var e *p2p.Comm
		e, err = d.Split(short, p.rank%2, -p.rank)
		err = errors.Join(err, e.Close())
	}
	more = err == nil
	if p.rank == server {
		p.sayNext(ctx, more)
	}
	if p.cell.outcome() == reset && p.rank == server && errors.Is(err, context.DeadlineExceeded) {
		err = nil // Dup documents that it waits
	}
	p.check(-1, err)
	p.check(-1, d.Close())
	return more && p.next(ctx)
}

// sayNext tells the others whether there is another round.
func (p *player) sayNext(ctx context.Context, more bool) {
	buf := []byte{0}
	if more && !p.over() {
		buf[0] = 1
	}
	for peer := range matrixRanks { // itself too
		p.check(peer, p.c.Send(ctx, peer, tagNext, buf))
	}
}

// next reports whether there is another round.
func (p *player) next(ctx context.Context) bool {
	buf := []byte{0}
	_, err := p.c.Recv(ctx, server, tagNext, buf)
	return p.check(server, err) && err == nil && buf[0] != 0
}

// shutDown has all but the victim wait in Shutdown. The victim calls it when the fault is over.
func (p *player) shutDown(ctx context.Context) {
	p.say("there")
	if p.rank == victim {
		<-p.heard["over"]
	}
	p.check(-1, p.leave(ctx))
}

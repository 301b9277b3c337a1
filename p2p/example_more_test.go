package p2p_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/tagmatch/tagmatch/p2p"
)

// A synchronous send ends when its message is matched: not before the other rank has come so far.
func ExampleComm_Issend() {
	w := join()
	ctx, c, in := context.Background(), w.Comm(), make([]byte, 5)
	s := c.Issend(c.Rank(), 1, []byte("ready"))
	_, done, err := s.Test()
	check(err)
	fmt.Println("before the receive:", done)
	_, err = c.Recv(ctx, c.Rank(), 1, in)
	check(err)
	_, err = s.Wait(ctx)
	check(err)
	fmt.Println("received:", string(in))
	leave(w)
	// Output:
	// before the receive: false
	// received: ready
}

// One call posts a window of messages, and one completes it.
func ExampleComm_IsendAll() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	var out, in []p2p.Transfer
	for i := range 3 {
		out = append(out, p2p.Transfer{Rank: c.Rank(), Tag: p2p.Tag(i), Buf: fmt.Appendf(nil, "part %d", i)})
		in = append(in, p2p.Transfer{Rank: c.Rank(), Tag: p2p.Tag(i), Buf: make([]byte, 6)})
	}
	reqs := make([]p2p.Request, 0, len(out)+len(in)) // may be used again for each window
	reqs = c.IrecvAll(reqs, in)
	reqs = c.IsendAll(reqs, out)
	check(p2p.WaitAll(ctx, reqs, nil))
	for _, m := range in {
		fmt.Printf("%s\n", m.Buf)
	}
	leave(w)
	// Output:
	// part 0
	// part 1
	// part 2
}

// A probe tells the length before there is a buffer. Where several goroutines receive use Mprobe.
func ExampleComm_Probe() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	check(c.Send(ctx, c.Rank(), 9, []byte("of any length")))
	st, err := c.Probe(ctx, p2p.AnySource, p2p.AnyTag)
	check(err)
	in := make([]byte, st.Len)
	_, err = c.Recv(ctx, st.Source, st.Tag, in)
	check(err)
	fmt.Printf("%s\n", in)
	leave(w)
	// Output: of any length
}

// TestAny looks for one of several messages, between other work.
func ExampleTestAny() {
	w := join()
	c, in := w.Comm(), make([][]byte, 3)
	var reqs []p2p.Request
	for i := range in {
		in[i] = make([]byte, 8)
		reqs = append(reqs, c.Irecv(c.Rank(), p2p.Tag(i), in[i]))
	}
	c.Isend(c.Rank(), 1, []byte("the 2nd")).Free()
	for {
		i, st, done, err := p2p.TestAny(reqs)
		check(err)
		if done {
			fmt.Printf("%d: %s\n", i, in[i][:st.Len])
			break
		}
	}
	reqs[0].Cancel()
	reqs[2].Cancel()
	_ = p2p.WaitAll(context.Background(), reqs, nil) // ErrCanceled
	leave(w)
	// Output: 1: the 2nd
}

// Isend never waits: where the peers do not receive, what waits for them is bounded by
// Config.SendLimit, and Room is where to wait.
func ExampleWorld_Room() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	for range 1000 {
		check(w.Room(ctx))
		c.Isend(c.Rank(), 1, []byte("one of many")).Free() // nobody asks for its outcome
	}
	in, n := make([]byte, 16), 0
	for range 1000 {
		st, err := c.Recv(ctx, c.Rank(), 1, in)
		check(err)
		n += int(st.Len)
	}
	fmt.Println(n)
	leave(w)
	// Output: 11000
}

// Done is a channel, for a select with whatever else a program waits for.
func ExampleRequest_Done() {
	w := join()
	ctx, c, in := context.Background(), w.Comm(), make([]byte, 8)
	r := c.Irecv(c.Rank(), 1, in)
	c.Isend(c.Rank(), 1, []byte("here")).Free()
	select {
	case <-r.Done():
		st, err := r.Wait(ctx) // does not wait any more
		check(err)
		fmt.Printf("%s\n", in[:st.Len])
	case <-ctx.Done():
	}
	leave(w)
	// Output: here
}

// Metrics are for monitoring, Dump is for people who ask what a program waits for.
func ExampleWorld_Metrics() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	r := c.Irecv(c.Rank(), 0x51, make([]byte, 8))
	fmt.Println("posted:", w.Metrics().PostedNow)
	var out strings.Builder
	check(w.Dump(&out))
	fmt.Println("in the dump:", strings.Contains(out.String(), "posted receives: 1"))
	check(c.Send(ctx, c.Rank(), 0x51, []byte("enough")))
	_, err := r.Wait(ctx)
	check(err)
	m := w.Metrics()
	fmt.Println("sent:", m.EagerSent, "received:", m.EagerReceived)
	leave(w)
	// Output:
	// posted: 1
	// in the dump: true
	// sent: 1 received: 1
}

// A rank that cannot go on ends the job on all ranks; the launcher exits with its code.
func ExampleWorld_Abort() {
	w := join()
	r := w.Comm().Irecv(w.Rank(), 1, nil)
	if _, err := os.Stat("/no/such/input"); err != nil {
		w.Abort(3, "the input is missing")
	}
	_, err := r.Wait(context.Background())
	fmt.Println(err)
	check(w.Close())
	// Output: p2p: recv from 0, tag 0x1: job aborted: by rank 0 with code 3: the input is missing
}

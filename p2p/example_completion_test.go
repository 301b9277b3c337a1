package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// A Queue drives many requests: chunks of a vector are added up in the order in which they arrive.
func ExampleQueue() {
	w := join()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, q := w.Comm(), w.NewQueue(16)
	in, sum := make([]byte, 16), 0
	for i := range in {
		c.Irecv(p2p.AnySource, p2p.Tag(i), in[i:i+1]).Notify(q, uint64(i))
	}
	for i := range in {
		check(c.Send(ctx, c.Rank(), p2p.Tag(i), []byte{byte(i)}))
	}
	done := make([]p2p.Completion, len(in))
	for left := len(in); left > 0; {
		n, err := q.Wait(ctx, done)
		check(err)
		for _, d := range done[:n] {
			check(d.Err)
			sum += int(in[d.Data]) // while others are still on their way
		}
		left -= n
	}
	fmt.Println(sum)
	leave(w)
	// Output: 120
}

// A server answers what comes, and posts the next receive for each message, until it is told to
// stop.
func ExampleQueue_All() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	for _, text := range []string{"one", "two", "stop"} {
		check(c.Send(ctx, w.Rank(), 1, []byte(text)))
	}
	q, buf := w.NewQueue(1), make([]byte, 16)
	c.Irecv(p2p.AnySource, 1, buf).Notify(q, 0)
	for done, err := range q.All(ctx) {
		check(err)      // of the queue
		check(done.Err) // of the receive
		text := string(buf[:done.Status.Len])
		fmt.Println(text)
		if text == "stop" {
			break
		}
		c.Irecv(p2p.AnySource, 1, buf).Notify(q, 0)
	}
	check(q.Close())
	leave(w)
	// Output:
	// one
	// two
	// stop
}

// Post everything, then wait: no order of the ranks can deadlock.
func ExampleWaitAll() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	in := make([]byte, c.Size())
	var reqs []p2p.Request
	for peer := range c.Size() {
		reqs = append(reqs, c.Irecv(peer, 3, in[peer:peer+1]), c.Isend(peer, 3, []byte{byte(c.Rank() + 40)}))
	}
	check(p2p.WaitAll(ctx, reqs, nil))
	fmt.Println(in)
	leave(w)
	// Output: [40]
}

// WaitAny consumes one request at a time, whichever ends first.
func ExampleWaitAny() {
	w := join()
	ctx, c, buf := context.Background(), w.Comm(), make([]byte, 8)
	reqs := []p2p.Request{c.Irecv(c.Rank(), 1, buf[:4]), c.Irecv(c.Rank(), 2, buf[4:])}
	check(c.Send(ctx, c.Rank(), 2, []byte("two")))
	for range reqs {
		i, st, err := p2p.WaitAny(ctx, reqs)
		check(err)
		fmt.Printf("request %d: %d bytes\n", i, st.Len)
		if i == 1 {
			check(c.Send(ctx, c.Rank(), 1, []byte("one!")))
		}
	}
	i, _, _ := p2p.WaitAny(ctx, reqs)
	fmt.Println("none is left:", i)
	leave(w)
	// Output:
	// request 1: 3 bytes
	// request 0: 4 bytes
	// none is left: -1
}

// WaitSome takes all that has ended, for programs that have more to do than to wait for one.
func ExampleWaitSome() {
	w := join()
	ctx, c, in := context.Background(), w.Comm(), make([]byte, 3)
	var reqs []p2p.Request
	for i := range in {
		reqs = append(reqs, c.Irecv(c.Rank(), p2p.Tag(i), in[i:i+1]), c.Isend(c.Rank(), p2p.Tag(i), []byte{byte(i)}))
	}
	out, ended := make([]p2p.Completion, len(reqs)), 0
	for {
		n, err := p2p.WaitSome(ctx, reqs, out)
		check(err)
		if n == 0 { // all are inactive
			break
		}
		ended += n
	}
	fmt.Println(ended, in)
	leave(w)
	// Output: 6 [0 1 2]
}

// TestAll lets the program compute until all messages are here.
func ExampleTestAll() {
	w := join()
	c, in := w.Comm(), make([]byte, 5)
	reqs := []p2p.Request{c.Irecv(c.Rank(), 1, in), c.Isend(c.Rank(), 1, []byte("ready"))}
	computed := 0
	for {
		done, err := p2p.TestAll(reqs, nil)
		check(err)
		if done {
			break
		}
		computed++
	}
	fmt.Println(string(in))
	leave(w)
	// Output: ready
}

// TestSome takes what has ended, between other work, until nothing is left.
func ExampleTestSome() {
	w := join()
	c, in := w.Comm(), make([]byte, 3)
	var reqs []p2p.Request
	for i := range in {
		reqs = append(reqs, c.Irecv(c.Rank(), p2p.Tag(i), in[i:i+1]), c.Isend(c.Rank(), p2p.Tag(i), []byte{byte(i)}))
	}
	out, ended := make([]p2p.Completion, 2), 0
	for active := true; active; {
		var n int
		n, active = p2p.TestSome(reqs, out)
		ended += n
	}
	fmt.Println(ended, in)
	leave(w)
	// Output: 6 [0 1 2]
}

// Ranks in a ring pass a value on, in place: alone this one gets its own back.
func ExampleComm_Sendrecv() {
	w := join()
	c := w.Comm()
	next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	buf := []byte("value")
	for range c.Size() {
		_, err := c.Sendrecv(context.Background(), next, 1, buf, prev, 1, buf)
		check(err)
	}
	fmt.Println(string(buf))
	leave(w)
	// Output: value
}

// A persistent operation is prepared once and started for each step.
func ExamplePersistent() {
	w := join()
	c, in, out := w.Comm(), make([]byte, 1), make([]byte, 1)
	recv, send := c.RecvInit(c.Rank(), 1, in), c.SendInit(c.Rank(), 1, out)
	for step := range 3 {
		out[0] = byte(step * step)
		reqs := []p2p.Request{recv.Start(), send.Start()}
		check(p2p.WaitAll(context.Background(), reqs, nil))
		fmt.Println(in[0])
	}
	leave(w)
	// Output:
	// 0
	// 1
	// 4
}

// Peek tells the outcome of a request and leaves it to be waited for.
func ExampleRequest_Peek() {
	w := join()
	ctx := context.Background()
	r := w.Irecv(1, p2p.MaskExact, make([]byte, 8))
	_, done, _ := r.Peek()
	fmt.Println(done)
	check(w.Send(ctx, w.Rank(), 1, []byte("data")))
	for !done {
		_, done, _ = r.Peek()
	}
	st, err := r.Wait(ctx)
	fmt.Println(st.Len, err)
	leave(w)
	// Output:
	// false
	// 4 <nil>
}

// Only the end of the operation gives the buffer back: after Cancel the request is waited for.
func ExampleRequest_Cancel() {
	w := join()
	r := w.Irecv(1, p2p.MaskExact, make([]byte, 8))
	r.Cancel()
	_, err := r.Wait(context.Background()) // a message that was faster would be received
	fmt.Println(errors.Is(err, p2p.ErrCanceled))
	leave(w)
	// Output: true
}

// The context of Wait bounds the waiting. The operation goes on, and can be waited for again.
func ExampleRequest_Wait() {
	w := join()
	buf := make([]byte, 8)
	r := w.Irecv(1, p2p.MaskExact, buf)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := r.Wait(ctx)
	fmt.Println(err)
	check(w.Send(context.Background(), w.Rank(), 1, []byte("late")))
	st, err := r.Wait(context.Background())
	check(err)
	fmt.Printf("%s\n", buf[:st.Len])
	leave(w)
	// Output:
	// context deadline exceeded
	// late
}

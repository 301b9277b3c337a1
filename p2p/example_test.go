package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// join is the begin of every program. Here it returns a World of one; under `tagmatch run -n 4`,
// one of four.
func join() *p2p.World {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return w
}

func Example() {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	buf := make([]byte, 8)
	next := (w.Rank() + 1) % w.Size()
	r := w.Irecv(7, p2p.Exact, buf)
	if err := w.Send(ctx, next, 7, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	st, err := r.Wait(ctx)
	if errors.Is(err, p2p.ErrPeerLost) {
		log.Fatal(err)
	}
	fmt.Println(st.Source, string(buf[:st.Len]))
	if err := w.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: 0 hello
}

// A receive with a mask takes every message whose tag agrees in the bits of the mask.
func ExampleWorld_Recv() {
	w := join()
	defer w.Close()
	ctx := context.Background()
	_ = w.Send(ctx, w.Rank(), 0x2_0007, []byte("step 7 of job 2"))
	buf := make([]byte, 64)
	st, err := w.Recv(ctx, 0x2_0000, 0xffff_0000, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("tag %#x: %s\n", st.Tag, buf[:st.Len])
	// Output: tag 0x20007: step 7 of job 2
}

// A blocking call whose context ends is cancelled: the buffer is free when it returns.
func ExampleWorld_Recv_deadline() {
	w := join()
	defer w.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := w.Recv(ctx, 1, p2p.Exact, make([]byte, 8))
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// p2p: recv from any, tag 0x1: context deadline exceeded
	// true
}

// Post everything, then wait: no order of the ranks can deadlock.
func ExampleWaitAll() {
	w := join()
	defer w.Close()
	ctx, c := context.Background(), w.Comm()
	in := make([]byte, c.Size())
	var reqs []p2p.Request
	for peer := range c.Size() {
		reqs = append(reqs, c.Irecv(peer, 3, in[peer:peer+1]), c.Isend(peer, 3, []byte{byte(c.Rank() + 40)}))
	}
	if err := p2p.WaitAll(ctx, reqs, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(in)
	// Output: [40]
}

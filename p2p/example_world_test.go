package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/p2p"
)

// join is the begin of the other examples: a World of one, or under `tagmatch run -n 4`, one of
// four.
func join() *p2p.World {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	check(err)
	return w
}

// leave is their end: it delivers what was sent and waits for the other ranks.
func leave(w *p2p.World) { check(w.Shutdown(context.Background())) }

// inOneProcess joins n ranks that are all in this process; a launcher starts one for each.
func inOneProcess(n int) []*p2p.World {
	worlds := make([]*p2p.World, n)
	var joining sync.WaitGroup
	for rank, b := range bootstrap.NewLocal(n) {
		joining.Go(func() {
			w, err := p2p.Init(context.Background(), p2p.Config{Bootstrap: b})
			check(err)
			worlds[rank] = w
		})
	}
	joining.Wait()
	return worlds
}

// A receive with a mask takes every message whose tag agrees in the bits of the mask.
func ExampleWorld_Recv() {
	w := join()
	ctx := context.Background()
	check(w.Send(ctx, w.Rank(), 0x2_0007, []byte("step 7 of job 2")))
	buf := make([]byte, 64)
	st, err := w.Recv(ctx, 0x2_0000, 0xffff_0000, buf)
	check(err)
	fmt.Printf("tag %#x: %s\n", st.Tag, buf[:st.Len])
	leave(w)
	// Output: tag 0x20007: step 7 of job 2
}

// A matched probe takes a message before it has a buffer: no other goroutine can receive it.
func ExampleWorld_Mprobe() {
	w := join()
	ctx := context.Background()
	check(w.Send(ctx, w.Rank(), 5, []byte("of any length")))
	m, err := w.Mprobe(ctx, 0, p2p.MaskAny)
	check(err)
	buf := make([]byte, m.Status().Len)
	st, err := m.Recv(ctx, buf)
	check(err)
	fmt.Printf("tag %d: %s\n", st.Tag, buf)
	leave(w)
	// Output: tag 5: of any length
}

// A blocking call whose context ends is cancelled: the buffer is free when it returns.
func ExampleWorld_Recv_deadline() {
	w := join()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := w.Recv(ctx, 1, p2p.MaskExact, make([]byte, 8))
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	leave(w)
	// Output:
	// p2p: recv from any, tag 0x1: context deadline exceeded
	// true
}

// Where the receiver does not know how long a message is, RecvAlloc makes the buffer, and a limit
// bounds what a sender can make it allocate.
func ExampleWorld_RecvAlloc() {
	w := join()
	ctx := context.Background()
	for _, text := range []string{"short", "far too long"} {
		check(w.Send(ctx, w.Rank(), 1, []byte(text)))
		msg, st, err := w.RecvAlloc(ctx, 1, p2p.MaskExact, 8)
		fmt.Printf("%q of %d bytes, truncated: %v\n", msg, st.Len, errors.Is(err, p2p.ErrTruncated))
	}
	leave(w)
	// Output:
	// "short" of 5 bytes, truncated: false
	// "far too " of 12 bytes, truncated: true
}

// A receive from any source cannot know whether its message would have come from a rank that is
// lost: it fails, until the program has acknowledged the loss. Then the other ranks can go on.
func ExampleWorld_AckFailures() {
	worlds := inOneProcess(2)
	worlds[1].Close() // without Shutdown, as a process that ends

	w, ctx, buf := worlds[0], context.Background(), make([]byte, 16)
	_, err := w.Recv(ctx, 1, p2p.MaskExact, buf)
	var lost *p2p.PeerError
	if !errors.As(err, &lost) {
		log.Fatal(err)
	}
	fmt.Println("lost:", lost.Ranks, w.Failed())
	w.AckFailures(lost.Ranks...)

	check(w.Send(ctx, 0, 1, []byte("still here")))
	st, err := w.Recv(ctx, 1, p2p.MaskExact, buf)
	check(err)
	fmt.Printf("rank %d is %s\n", st.Source, buf[:st.Len])
	w.Close() // Shutdown would wait for the lost rank, in vain
	// Output:
	// lost: [1] [1]
	// rank 0 is still here
}

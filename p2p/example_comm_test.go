package p2p_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tagmatch/tagmatch/p2p"
)

// A library makes a Comm of its own from the one that it is given. No receive of the program can
// take its messages, whatever tags both use.
func ExampleComm_Dup() {
	w := join()
	defer w.Close()
	ctx := context.Background()
	library, err := w.Comm().Dup(ctx) // on all ranks
	if err != nil {
		log.Fatal(err)
	}
	defer library.Close()
	buf := make([]byte, 16)
	program := w.Comm().Irecv(p2p.AnySource, p2p.AnyTag, buf)
	_ = library.Send(ctx, library.Rank(), 1, []byte("inside"))
	_ = w.Comm().Send(ctx, w.Rank(), 1, []byte("outside"))
	st, err := program.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", buf[:st.Len])
	if st, err = library.Recv(ctx, p2p.AnySource, p2p.AnyTag, buf); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", buf[:st.Len])
	// Output:
	// outside
	// inside
}

// A Comm for the even ranks and one for the odd ones, each beginning with its last rank.
func ExampleComm_Split() {
	w := join()
	defer w.Close()
	half, err := w.Comm().Split(context.Background(), w.Rank()%2, -w.Rank())
	if err != nil {
		log.Fatal(err)
	}
	defer half.Close()
	fmt.Printf("rank %d of %d, in the World %d\n", half.Rank(), half.Size(), half.WorldRank(half.Rank()))
	// Output: rank 0 of 1, in the World 0
}

// A protocol with raw tags that puts the sender into them can say so: then the loss of another rank
// does not end its receives.
func ExampleWorld_RecvFrom() {
	w := join()
	defer w.Close()
	ctx := context.Background()
	tag := func(sender, step int) p2p.Tag { return p2p.Tag(sender)<<32 | p2p.Tag(step) }
	_ = w.Send(ctx, w.Rank(), tag(w.Rank(), 7), []byte("step 7"))
	buf := make([]byte, 16)
	st, err := w.RecvFrom(ctx, 0, tag(0, 7), p2p.Exact, buf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s of rank %d\n", buf[:st.Len], st.Source)
	// Output: step 7 of rank 0
}

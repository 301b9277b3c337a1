package p2p_test

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// A library makes a Comm of its own from the one that it is given. No receive of the program can
// take its messages, whatever tags both use.
func ExampleComm_Dup() {
	w := join()
	ctx := context.Background()
	library, err := w.Comm().Dup(ctx) // on all ranks
	check(err)
	buf := make([]byte, 16)
	program := w.Comm().Irecv(p2p.AnySource, p2p.AnyTag, buf)
	check(library.Send(ctx, library.Rank(), 1, []byte("inside")))
	check(w.Comm().Send(ctx, w.Rank(), 1, []byte("outside")))
	st, err := program.Wait(ctx)
	check(err)
	fmt.Printf("%s\n", buf[:st.Len])
	st, err = library.Recv(ctx, p2p.AnySource, p2p.AnyTag, buf)
	check(err)
	fmt.Printf("%s\n", buf[:st.Len])
	check(library.Close())
	leave(w)
	// Output:
	// outside
	// inside
}

// A Comm for the even ranks and one for the odd ones, each beginning with its last rank.
func ExampleComm_Split() {
	w := join()
	half, err := w.Comm().Split(context.Background(), w.Rank()%2, -w.Rank())
	check(err)
	fmt.Printf("rank %d of %d, in the World %d\n", half.Rank(), half.Size(), half.WorldRank(half.Rank()))
	check(half.Close())
	leave(w)
	// Output: rank 0 of 1, in the World 0
}

// Rank 0 prepares something outside of the messages, which the others use after the Barrier.
func ExampleComm_Barrier() {
	w := join()
	ready := false
	if w.Rank() == 0 {
		ready = true // a file, say
	}
	check(w.Comm().Barrier(context.Background()))
	fmt.Println(ready)
	leave(w)
	// Output: true
}

package p2p_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tagmatch/tagmatch/p2p"
)

// Each rank greets the next one. Alone, as here, this rank greets itself; under `tagmatch run -n 4`
// there are four.
func Example() {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	check(err)
	defer w.Close() // after an error: the other ranks see that this one has gone

	buf := make([]byte, 8)
	r := w.Irecv(7, p2p.MaskExact, buf) // of any rank
	next := (w.Rank() + 1) % w.Size()
	check(w.Send(ctx, next, 7, []byte("hello")))
	st, err := r.Wait(ctx)
	check(err) // ErrTruncated too: what came was longer than buf
	fmt.Printf("rank %d says %s\n", st.Source, buf[:st.Len])

	check(w.Shutdown(ctx)) // waits for the other ranks
	// Output: rank 0 says hello
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

package p2p_test

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/p2p"
)

// Numbers are sent and received as bytes, without a copy.
func ExampleBytes() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	in, out := make([]float64, 3), []float64{1, 2.5, -4}
	r := c.Irecv(c.Rank(), 1, p2p.Bytes(in))
	check(c.Send(ctx, c.Rank(), 1, p2p.Bytes(out)))
	st, err := r.Wait(ctx)
	check(err)
	fmt.Println(in[:st.Len/8])
	leave(w)
	// Output: [1 2.5 -4]
}

// Large messages are fastest from memory of Alloc, which Elements shows as numbers. It is freed
// when no request uses it any more.
func ExampleWorld_Alloc() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	region, err := w.Alloc(2 * 8 * 100_000)
	check(err)
	numbers := p2p.Elements[float64](region.Bytes())
	out, in := numbers[:100_000], numbers[100_000:]
	out[99_999] = 0.5
	r := c.Irecv(c.Rank(), 1, p2p.Bytes(in))
	check(c.Send(ctx, c.Rank(), 1, p2p.Bytes(out)))
	_, err = r.Wait(ctx)
	check(err)
	fmt.Println(in[99_999])
	check(region.Close())
	leave(w)
	// Output: 0.5
}

// Register is for buffers that the program has from elsewhere and uses for many messages.
func ExampleWorld_Register() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	buf := make([]byte, 1<<20)
	region, err := w.Register(buf)
	check(err)
	for step := range 3 {
		buf[0] = byte(step)
		_, err := c.Sendrecv(ctx, c.Rank(), 1, buf[:1<<19], c.Rank(), 1, buf[1<<19:])
		check(err)
	}
	fmt.Println(buf[1<<19])
	check(region.Close()) // before buf is unmapped or used for something else
	leave(w)
	// Output: 2
}

// A header and a body are one message, from two buffers and into two others.
func ExampleComm_IsendVec() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	header, body := make([]byte, 4), make([]byte, 16)
	r := c.IrecvVec(c.Rank(), 1, [][]byte{header, body})
	s := c.IsendVec(c.Rank(), 1, [][]byte{[]byte("v1.0"), []byte("the body")})
	check(p2p.WaitAll(ctx, []p2p.Request{s}, nil))
	st, err := r.Wait(ctx)
	check(err)
	fmt.Printf("%s, %s\n", header, body[:st.Len-4])
	leave(w)
	// Output: v1.0, the body
}

// A short message is read where it lies, and discarded.
func ExampleMessage_Bytes() {
	w := join()
	ctx, c := context.Background(), w.Comm()
	check(c.Send(ctx, c.Rank(), 1, []byte("a word")))
	m, err := c.Mprobe(ctx, p2p.AnySource, p2p.AnyTag)
	check(err)
	if lent := m.Bytes(); lent != nil { // nil: it was not transferred yet, as it is large
		fmt.Printf("%s\n", lent)
	}
	m.Discard() // lent is gone
	leave(w)
	// Output: a word
}

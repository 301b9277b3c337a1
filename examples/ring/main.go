// Ring passes a token once around the ranks of a job, each of which adds its number.
//
//	go run ./cmd/tagmatch run -n 4 -- go run ./examples/ring
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	if err := ring(context.Background()); err != nil {
		log.Fatal(err) // the launcher then ends the other ranks
	}
}

const token p2p.Tag = 7

func ring(ctx context.Context) error {
	w, err := p2p.Init(ctx, p2p.Config{}) // finds its launcher, and returns when all ranks are here
	if err != nil {
		return err
	}
	defer w.Close() // no effect after Shutdown; after an error the others lose this rank at once

	c := w.Comm()
	if c.Size() == 1 {
		return errors.New("a ring takes two ranks or more: tagmatch run -n 4 -- ring")
	}
	next, previous := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	if c.Rank() == 0 {
		if err := c.Send(ctx, next, token, []byte("0")); err != nil {
			return err
		}
	}
	buf := make([]byte, 8*c.Size()) // a longer message would be the error p2p.ErrTruncated
	st, err := c.Recv(ctx, previous, token, buf)
	if err != nil {
		return err // if a rank is lost errors.As finds the *p2p.PeerError that says which, and why
	}
	if c.Rank() == 0 {
		fmt.Printf("the token was at ranks %s\n", buf[:st.Len])
	} else if err := c.Send(ctx, next, token, fmt.Append(buf[:st.Len], " ", c.Rank())); err != nil {
		return err
	}
	return w.Shutdown(ctx) // delivers what was sent, and waits for the other ranks
}

// Cancel shows operations that end before their message comes: by a deadline, and by Cancel.
//
//	go run ./cmd/tagmatch run -n 2 -- go run ./examples/cancel
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

const (
	data p2p.Tag = 1 + iota
	ask          // for data

	patience = 10 * time.Millisecond
)

func run(ctx context.Context) error {
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Size() != 2 {
		return errors.New("this example takes two ranks: tagmatch run -n 2 -- cancel")
	}
	role := impatient
	if w.Rank() == 1 {
		role = silent
	}
	if err := role(ctx, w.Comm()); err != nil {
		return err
	}
	return w.Shutdown(ctx)
}

// impatient is rank 0.
func impatient(ctx context.Context, c *p2p.Comm) error {
	buf := make([]byte, 64)

	// A blocking call is cancelled when its context ends. When it has returned buf is the program's
	// again; no message was taken, and one that comes later is for the next receive.
	short, stop := context.WithTimeout(ctx, patience)
	defer stop()
	_, err := c.Recv(short, 1, data, buf)
	if err := expect("Recv", err, context.DeadlineExceeded); err != nil {
		return err
	}

	// The context of Wait bounds only the waiting: the receive goes on, and the library has buf.
	short, stop = context.WithTimeout(ctx, patience)
	defer stop()
	r := c.Irecv(1, data, buf)
	_, err = r.Wait(short)
	if err := expect("Wait", err, context.DeadlineExceeded); err != nil {
		return err
	}

	// Cancel only asks. A Wait says how the receive has ended, with success if the message was
	// faster, and then buf is free.
	r.Cancel()
	_, err = r.Wait(ctx)
	if err := expect("Wait after Cancel", err, p2p.ErrCanceled); err != nil {
		return err
	}

	// A large message stays with its sender until it is received. A Send that gives up takes it
	// back, and it never arrives. Only if the error is p2p.ErrMaybeDelivered too may it have been
	// received: then the other rank did not say.
	short, stop = context.WithTimeout(ctx, patience)
	defer stop()
	err = c.Send(short, 1, data, make([]byte, 4<<20))
	if err := expect("Send", err, context.DeadlineExceeded); err != nil {
		return err
	}

	// None of this is felt later.
	if err := c.Send(ctx, 1, ask, nil); err != nil {
		return err
	}
	st, err := c.Recv(ctx, 1, data, buf)
	if err != nil {
		return err
	}
	fmt.Printf("Recv: %s\n", buf[:st.Len])
	return nil
}

// expect prints how an operation ended. Rank 1 sees to it here that no message is in time; other
// programs go on where err is nil.
func expect(call string, err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("%s ended with error %v, not with %v", call, err, want)
	}
	fmt.Printf("%s: %v\n", call, err)
	return nil
}

// silent is rank 1, which sends nothing before it is asked.
func silent(ctx context.Context, c *p2p.Comm) error {
	if _, err := c.Recv(ctx, 0, ask, nil); err != nil {
		return err
	}
	return c.Send(ctx, 0, data, []byte("the message"))
}

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/tagmatch/tagmatch/p2p"
)

// envMoves is the address where rank 0 of moves is told when to go on.
const envMoves = "TAGMATCH_TEST_MOVES"

// What moves sends, from rank 0 to rank 1.
const (
	movedSmall, movedSmallBytes = 500, 1 << 10
	movedLarge, movedLargeBytes = 32, 1 << 20
)

// moves is a program of 2 ranks. Rank 0 tells the name of the job. When it gets a byte it sends its
// messages, and tells a byte when the last, which is no eager one, has come; it ends when the connection does.
func moves() error {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Rank() == 0 {
		err = sendWhenTold(ctx, w)
	} else {
		err = receiveAll(ctx, w.Comm())
	}
	if err != nil {
		return err
	}
	return w.Shutdown(ctx)
}

func sendWhenTold(ctx context.Context, w *p2p.World) error {
	conn, err := net.Dial("tcp", os.Getenv(envMoves))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, w.Metrics().Job); err != nil {
		return err
	}
	told := make([]byte, 1)
	if _, err := io.ReadFull(conn, told); err != nil {
		return err
	}
	for i := range movedSmall + movedLarge {
		size := movedSmallBytes
		if i >= movedSmall {
			size = movedLargeBytes
		}
		if err := w.Comm().Send(ctx, 1, 7, make([]byte, size)); err != nil {
			return err
		}
	}
	if _, err := conn.Write(told); err != nil {
		return err
	}
	_, err = io.ReadAll(conn)
	return err
}

func receiveAll(ctx context.Context, c *p2p.Comm) error {
	buf := make([]byte, movedLargeBytes)
	for range movedSmall + movedLarge {
		if _, err := c.Recv(ctx, 0, 7, buf); err != nil {
			return err
		}
	}
	return nil
}

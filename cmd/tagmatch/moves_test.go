package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/p2p"
)

// envMoves makes this test binary one of two ranks that move bytes while a test tells them to, by
// lines of a connection to this address.
const envMoves = "TAGMATCH_TEST_MOVES"

const tagBytes, tagEnd p2p.Tag = 1, 2

// moves is such a rank. Rank 0 says the name of the job. At each line it begins to move bytes, or
// ends and says how many it has moved, once rank 1 has them.
func moves(address string) error {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Rank() == 1 {
		err = takeBytes(ctx, w)
	} else {
		err = giveBytes(ctx, w, address)
	}
	if err != nil {
		return err
	}
	return w.Shutdown(ctx)
}

// sizes are of messages of both protocols.
var sizes = []int{8 << 10, 300_000}

func giveBytes(ctx context.Context, w *p2p.World, address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintln(conn, w.Metrics().Job)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var stop atomic.Bool
		go func() {
			lines.Scan()
			stop.Store(true)
		}()
		moved := 0
		for i := 0; !stop.Load(); i++ {
			n := sizes[i%len(sizes)]
			if err := w.Comm().Send(ctx, 1, tagBytes, make([]byte, n)); err != nil {
				return err
			}
			moved += n
		}
		if err := w.Comm().Send(ctx, 1, tagEnd, nil); err != nil {
			return err
		}
		if _, err := w.Comm().Recv(ctx, 1, tagEnd, nil); err != nil {
			return err
		}
		fmt.Fprintln(conn, moved)
	}
	return w.Comm().Send(ctx, 1, tagEnd, []byte{1})
}

// takeBytes receives until a message of tagEnd has a byte.
func takeBytes(ctx context.Context, w *p2p.World) error {
	buf := make([]byte, sizes[1])
	for {
		st, err := w.Comm().Recv(ctx, 0, p2p.AnyTag, buf)
		switch {
		case err != nil || st.Tag == tagEnd && st.Len != 0:
			return err
		case st.Tag == tagEnd:
			if err := w.Comm().Send(ctx, 0, tagEnd, nil); err != nil {
				return err
			}
		}
	}
}

package p2p_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// inTransfer has ws[1] receive a message of many chunks from ws[0] under a context, and calls then
// once the message has been matched with that receive. It returns what came of the receive.
func inTransfer(t *testing.T, ws []*p2p.World, buf []byte, then func(cancel func())) (p2p.Status, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	type outcome struct {
		st  p2p.Status
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		st, err := ws[1].Comm().Recv(ctx, 0, 1, buf)
		done <- outcome{st, err}
	}()
	for ws[1].Metrics().PostedNow == 0 {
		time.Sleep(10 * time.Microsecond)
	}
	then(cancel)
	got := <-done
	return got.st, got.err
}

const transferSize = 16 << 20

// TestCancelMatched: a Recv whose context ends while its message is being received returns with the
// message where another posted receive matches that too, or where the device's tag list has matched
// it; else at once, and the message is for the next receive.
func TestCancelMatched(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		message := pattern(transferSize, 1)
		c0, c1 := ws[0].Comm(), ws[1].Comm()
		for _, another := range []bool{true, false} {
			var next, send p2p.Request
			small, buf := fresh(8), fresh(transferSize)
			st, err := inTransfer(t, ws, buf, func(cancel func()) {
				if another {
					next = c1.Irecv(0, 1, small)
				}
				send = c0.Isend(1, 1, message)
				arrived(t, ws[1], ws[0]) // and so has its rendezvous request
				cancel()
			})
			if another || ws[1].Metrics().Transport == "tmsrq" {
				require.NoError(t, err)
			}
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
				st, err = c1.Recv(background, 0, 1, buf)
				require.NoError(t, err)
			}
			requireReceived(t, message, buf, st, 0, 1)
			wait(t, send)
			if another {
				require.NoError(t, c0.Send(background, 1, 1, pattern(8, 2)))
				requireReceived(t, pattern(8, 2), small, wait(t, next), 0, 1)
			}
		}
	})
}

// TestCancelMatchedLost: such a Recv, which may have to wait for the message, ends with an error
// when the sender is lost.
func TestCancelMatchedLost(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		message, buf := pattern(transferSize, 1), fresh(transferSize)
		_, err := inTransfer(t, ws, buf, func(cancel func()) {
			ws[1].Comm().Irecv(0, 1, fresh(8)).Free()
			s := ws[0].Comm().Isend(1, 1, message)
			arrived(t, ws[1], ws[0])
			cancel()
			require.NoError(t, ws[0].Close())
			_, err := s.Wait(background)
			if err != nil {
				require.ErrorIs(t, err, p2p.ErrClosed)
			}
		})
		require.NoError(t, ws[1].Close())
		if err != nil { // else the message was faster
			require.True(t, errors.Is(err, p2p.ErrPeerLost) || errors.Is(err, context.Canceled), err)
		}
	})
}

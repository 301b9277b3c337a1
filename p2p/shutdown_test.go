package p2p_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
	"github.com/tagmatch/tagmatch/verbs"
)

// TestFailedShutdownLists: the error says what is unfinished as the program posted it, in one line
// however many messages there are; the Logger gets the list.
func TestFailedShutdownLists(t *testing.T) {
	var log strings.Builder
	over := make(chan struct{})
	p2ptest.RunConfig(t, 3, p2p.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(w *p2p.World) {
		defer w.Close()
		if w.Rank() != 0 {
			dup, err := w.Comm().Dup(background)
			if assert.NoError(t, err) {
				assert.NoError(t, dup.Send(background, 0, 4, []byte("never received")))
			}
			assert.NoError(t, w.Send(background, 0, 9, nil))
			<-over
			return
		}
		defer close(over)
		dup, err := w.Comm().Dup(background)
		if !assert.NoError(t, err) {
			return
		}
		for range 2 { // a barrier: all are here, with messages that are never received
			_, err := w.Recv(background, 9, p2p.MaskExact, nil)
			assert.NoError(t, err)
		}
		big := make([]byte, 100<<10)
		for range 100 {
			w.Comm().Isend(1, 1, big)
		}
		w.Comm().Isend(2, 1, big[:64<<10])
		for range 5 {
			w.Comm().Irecv(1, 2, make([]byte, 8))
		}
		w.Comm().Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 8))
		dup.Irecv(1, 5, nil)
		w.Irecv(7, 0xff, make([]byte, 9))
		w.Irecv(8, p2p.MaskExact, nil)
		ctx, cancel := context.WithCancel(background)
		cancel()
		err = w.Shutdown(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		assert.EqualError(t, err, "p2p: shutdown: messages are not all delivered: context canceled; unfinished here: "+
			"send to 1, tag 0x1, 102400 bytes, not received (100 times); send to 2, tag 0x1, 65536 bytes, not received; "+
			"recv from 1, tag 0x2, 8 bytes, no message (5 times); recv from any, raw tag 0x7 mask 0xff, 9 bytes, no message; "+
			"recv from any, raw tag 0x8, 0 bytes, no message; recv from any, any tag, 8 bytes, no message; "+
			"recv from 1, tag 0x5 of Comm 1, 0 bytes, no message; "+
			"message from 1, tag 0x4 of Comm 1, 14 bytes, no receive has matched it; "+
			"message from 2, tag 0x4 of Comm 1, 14 bytes, no receive has matched it")
	})
	for _, part := range []string{"shutdown failed", "rendezvous sends: ", "posted receives: 9"} {
		assert.Contains(t, log.String(), part)
	}
}

func TestFailedShutdownListsFew(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		defer w.Close()
		for tag := range p2p.Tag(10) {
			for range tag + 1 {
				w.Comm().Irecv(0, tag, make([]byte, 8))
			}
			w.Comm().Issend(0, 100+tag, make([]byte, 2))
		}
		assert.NoError(t, w.Send(background, 0, 1, nil))
		_, err := w.Recv(background, 1, p2p.MaskExact, nil) // with it the others have arrived
		assert.NoError(t, err)
		ctx, cancel := context.WithCancel(background)
		cancel()
		err = w.Shutdown(ctx)
		var want []string
		for tag := range 8 {
			want = append(want, fmt.Sprintf("send to 0, tag %#x, 2 bytes, not received", 100+tag))
		}
		for tag := 9; tag > 1; tag-- {
			want = append(want, fmt.Sprintf("recv from 0, tag %#x, 8 bytes, no message (%d times)", tag, tag+1))
		}
		for tag := range 8 {
			want = append(want, fmt.Sprintf("message from 0, tag %#x, 2 bytes, no receive has matched it", 100+tag))
		}
		want = append(want, "and 2 more sends", "and 3 more receives", "and 2 more messages")
		assert.ErrorContains(t, err, "; unfinished here: "+strings.Join(want, "; "))
	})
}

// TestSecondShutdown waits for the first one no longer than its context allows.
func TestSecondShutdown(t *testing.T) {
	over := make(chan struct{})
	p2ptest.Run(t, 2, func(w *p2p.World) {
		if w.Rank() == 1 {
			<-over // the Shutdown of rank 0 waits for this one's
			return
		}
		defer close(over)
		go func() { assert.NoError(t, w.Shutdown(background)) }()
		for !p2p.IsEnding(w) {
			runtime.Gosched()
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		err := w.Shutdown(ctx)
		assert.EqualError(t, err, "p2p: shutdown: another call is at it: context canceled")
		assert.ErrorIs(t, err, context.Canceled)
	})
}

// TestClosedIsSaid: the error names a rank that closed its World as such, whatever reports it.
func TestClosedIsSaid(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		defer w.Close()
		assert.NoError(t, w.Comm().Send(background, 1-w.Rank(), 1, nil))
		_, err := w.Comm().Recv(background, 1-w.Rank(), 1, nil)
		assert.NoError(t, err)
		if w.Rank() == 1 {
			return
		}
		_, err = w.Comm().Recv(background, 1, 5, nil)
		assert.EqualError(t, err, "p2p: recv from 1, tag 0x5: rank 1 lost: it has closed its World while this rank still counted on it")
		assert.ErrorIs(t, err, verbs.ErrPeerClosed)
	})
}

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

// TestFailedShutdownSummarises: the error has one line, however many messages there are; the Logger
// gets the list.
func TestFailedShutdownSummarises(t *testing.T) {
	var log strings.Builder
	over := make(chan struct{})
	p2ptest.RunConfig(t, 3, p2p.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, func(w *p2p.World) {
		defer w.Close()
		if w.Rank() != 0 {
			for _, tag := range []p2p.Tag{4, 9} {
				assert.NoError(t, w.Send(background, 0, tag, nil))
			}
			<-over
			return
		}
		defer close(over)
		for range 2 { // a barrier: all are here, with messages that are never received
			_, err := w.Recv(background, 9, p2p.Exact, nil)
			assert.NoError(t, err)
		}
		big := make([]byte, 100<<10)
		for range 100 {
			w.Comm().Isend(1, 1, big)
		}
		w.Isend(2, 7, big[:64<<10])
		for range 5 {
			w.Comm().Irecv(1, 2, make([]byte, 8))
		}
		w.Comm().Irecv(p2p.AnySource, p2p.AnyTag, make([]byte, 8))
		w.IrecvFrom(2, 0x30, 0xf0, make([]byte, 8))
		ctx, cancel := context.WithCancel(background)
		cancel()
		err := w.Shutdown(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		assert.EqualError(t, err, "p2p: shutdown: messages are not all delivered: context canceled; unfinished here: "+
			"sends to rank 1: 100, 10240000 bytes in all, one with tag 0x1 of World.Comm; sends to rank 2: 1, 65536 bytes in all, tag 0x7; "+
			"receives from rank 1: 5, 40 bytes in all, one with tag 0x2 of World.Comm; receives from any rank: 1, 8 bytes in all, any tag of World.Comm; "+
			"receives from rank 2: 1, 8 bytes in all, tag 0x30 mask 0xf0; messages that no receive has matched: 2")
	})
	for _, part := range []string{"shutdown failed", "rendezvous sends: ", "posted receives: 7"} {
		assert.Contains(t, log.String(), part)
	}
}

func TestSummaryNamesFewRanks(t *testing.T) {
	over := make(chan struct{})
	p2ptest.Run(t, 12, func(w *p2p.World) {
		defer w.Close()
		if w.Rank() != 0 {
			assert.NoError(t, w.Send(background, 0, 9, nil))
			<-over
			return
		}
		defer close(over)
		for range 11 { // a barrier
			_, err := w.Recv(background, 9, p2p.Exact, nil)
			assert.NoError(t, err)
		}
		for peer := 1; peer < 12; peer++ {
			for range peer {
				w.Comm().Irecv(peer, 1, make([]byte, 8))
			}
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		err := w.Shutdown(ctx)
		want := []string{}
		for peer := 11; peer > 3; peer-- {
			want = append(want, fmt.Sprintf("receives from rank %d: %d, %d bytes in all, one with tag 0x1 of World.Comm", peer, peer, 8*peer))
		}
		want = append(want, "receives from 3 more ranks: 6, 48 bytes in all")
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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
	"github.com/tagmatch/tagmatch/p2p"
)

// Waiters beside the HTTP server of rank 0.
const (
	waiterNone  = "none"
	waiterSleep = "asleep" // nothing comes until the end
	waiterBusy  = "busy"   // messages come before it goes to sleep
)

// busyGap is between two messages for a busy waiter: less than any waiter polls before it sleeps.
const busyGap = 20 * time.Microsecond

// Tags of an echo's messages.
const (
	echoBegin p2p.Tag = 1 + iota
	echoEnd
	echoMessage
)

// lastMessage is what the message says that ends the waiter.
const lastMessage = 1

// echo measures HTTP requests inside rank 0, each compared, while a goroutine of it is in Recv.
type echo struct{ benchkit.Common }

func newEcho() *echo {
	return &echo{benchkit.Common{Sizes: benchkit.Sizes{64}, Iters: 5000}}
}

func (e *echo) Run(s *benchkit.Session, size, iters int) error {
	for _, waiter := range []string{waiterNone, waiterSleep, waiterBusy} {
		if !s.First {
			if err := feed(s.World, waiter); err != nil {
				return err
			}
			continue
		}
		if err := s.Report(echoes(s, size, iters, waiter)); err != nil {
			return err
		}
	}
	return nil
}

// echoes is rank 0 beside one kind of waiter.
func echoes(s *benchkit.Session, size, iters int, waiter string) (benchkit.Result, error) {
	ctx, w := context.Background(), s.World
	if err := w.Send(ctx, s.Peer, echoBegin, nil); err != nil {
		return benchkit.Result{}, err
	}
	waited := make(chan error, 1)
	if waiter == waiterNone {
		waited <- nil
	} else {
		go func() { waited <- waitForLast(w) }()
	}
	r, err := requests(s, size, iters)
	r.Waiter = waiter
	if err == nil {
		err = w.Send(ctx, s.Peer, echoEnd, nil)
	}
	if err != nil {
		return r, err
	}
	return r, <-waited
}

// feed is rank 1: it sends to a busy waiter until the end, and then what ends it.
func feed(w *p2p.World, waiter string) error {
	ctx := context.Background()
	_, err := w.Recv(ctx, echoBegin, p2p.MaskExact, nil)
	switch {
	case err != nil:
		return err
	case waiter == waiterBusy:
		err = keepBusy(w)
	default:
		_, err = w.Recv(ctx, echoEnd, p2p.MaskExact, nil)
	}
	if err != nil || waiter == waiterNone {
		return err
	}
	return w.Send(ctx, 0, echoMessage, []byte{lastMessage})
}

// keepBusy sends a message each gap until the end.
func keepBusy(w *p2p.World) error {
	end, buf := w.Irecv(echoEnd, p2p.MaskExact, nil), make([]byte, 1)
	for next := time.Now(); ; {
		if _, done, err := end.Test(); done || err != nil {
			return err
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(busyGap)
			if err := w.Send(context.Background(), 0, echoMessage, buf); err != nil {
				return err
			}
		}
	}
}

// waitForLast is the waiter.
func waitForLast(w *p2p.World) error {
	for buf := make([]byte, 1); buf[0] != lastMessage; {
		if _, err := w.Recv(context.Background(), echoMessage, p2p.MaskExact, buf); err != nil {
			return err
		}
	}
	return nil
}

// requests sends HTTP requests to a server of this process, one after the other on one connection.
func requests(s *benchkit.Session, size, iters int) (benchkit.Result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return benchkit.Result{}, err
	}
	server := &http.Server{Handler: http.HandlerFunc(answer)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	url, body := "http://"+l.Addr().String(), bytes.Repeat([]byte{7}, size)
	hist := benchkit.NewHistogram()
	var elapsed time.Duration
	for i := range iters/10 + iters {
		start := time.Now()
		if err = request(client, url, body); err != nil {
			break
		}
		if i >= iters/10 { // after the warm-up
			took := time.Since(start)
			elapsed += took
			_ = hist.RecordValue(int64(took)) // one beyond its range shows in the average
		}
	}
	transport.CloseIdleConnections()
	err = errors.Join(err, server.Close())
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	r := s.Result("echo", size, iters, elapsed)
	r.Percentiles(hist, 1)
	return r, err
}

// answer reads all before it writes: HTTP/1 allows no reading after that. Who asked sees what
// failed.
func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = w.Write(body)
}

func request(client *http.Client, url string, body []byte) error {
	resp, err := client.Post(url, "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	got, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	if err == nil && !bytes.Equal(got, body) {
		err = fmt.Errorf("the echo of %d bytes has %d bytes, or others", len(body), len(got))
	}
	return err
}

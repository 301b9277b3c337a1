package benchkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

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

// Echo measures HTTP requests inside rank 0, each compared, while a goroutine of it is in Recv.
type Echo struct{ Common }

// NewEcho has the defaults.
func NewEcho() *Echo { return &Echo{Common{Sizes: Sizes{64}, Iters: 5000}} }

// Run measures a size beside each kind of waiter.
func (e *Echo) Run(s *Session, size, iters int) error {
	for _, waiter := range []string{waiterNone, waiterSleep, waiterBusy} {
		if !s.First {
			if err := s.feed(waiter); err != nil {
				return err
			}
			continue
		}
		waited := make(chan error, 1)
		go func() { waited <- s.waitFor(waiter) }()
		r, err := s.requests(size, iters)
		r.Waiter = waiter
		if err == nil {
			err = errors.Join(s.World.Send(context.Background(), s.Peer, done, nil), <-waited)
		}
		if err := s.Report(r, err); err != nil {
			return err
		}
	}
	return nil
}

// feed is rank 1: it sends to a busy waiter until the end, and then an empty message, which is the
// last.
func (s *Session) feed(waiter string) error {
	ctx, end := context.Background(), s.World.Irecv(done, p2p.MaskExact, nil)
	for next := time.Now(); waiter == waiterBusy; {
		if _, over, err := end.Peek(); over || err != nil {
			break
		}
		if now := time.Now(); now.After(next) {
			next = now.Add(busyGap)
			if err := s.World.Send(ctx, s.Peer, data, []byte{1}); err != nil {
				return err
			}
		}
	}
	if _, err := end.Wait(ctx); err != nil || waiter == waiterNone {
		return err
	}
	return s.World.Send(ctx, s.Peer, data, nil)
}

// waitFor is the waiter: it receives up to the last message.
func (s *Session) waitFor(waiter string) error {
	for last := waiter == waiterNone; !last; {
		st, err := s.World.Recv(context.Background(), data, p2p.MaskExact, make([]byte, 1))
		if err != nil {
			return err
		}
		last = st.Len == 0
	}
	return nil
}

// requests sends HTTP requests to a server of this process, one after the other on one connection.
func (s *Session) requests(size, iters int) (Result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Result{}, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // HTTP/1 allows no reading after writing; who asked sees what failed
		_, _ = w.Write(body)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	url, body := "http://"+l.Addr().String(), bytes.Repeat([]byte{7}, size)
	hist := NewHistogram()
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

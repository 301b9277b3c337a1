package mux

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/transport"
)

// waits lets one goroutine wait for several transports. Each transport but the first has a
// goroutine that waits for it during a Wait; the first event of any of them ends the others' waits.
// Wait returns only after all of these have ended, as a transport may be waited for by one
// goroutine at a time.
type waits struct {
	paths []*path
	over  atomic.Bool // the Wait has ended: it needs no Wake
	ended chan error
	group sync.WaitGroup

	mu      sync.Mutex // of started and closed
	started bool
	closed  bool
}

// path is one of the transports behind the first.
type path struct {
	transport.Transport
	ask  chan struct{}
	back atomic.Bool // its wait has ended: it needs no Wake
}

func (w *waits) init(paths []transport.Transport) {
	w.ended = make(chan error, len(paths))
	for _, p := range paths[1:] {
		w.paths = append(w.paths, &path{Transport: p, ask: make(chan struct{}, 1)})
	}
}

// begin starts the waits for all paths but the first; false after Close.
func (w *waits) begin(first transport.Transport) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.over.Store(false)
	for _, p := range w.paths {
		if !w.started {
			w.group.Go(func() { w.serve(p, first) })
		}
		p.back.Store(false)
		p.ask <- struct{}{}
	}
	w.started = true
	return true
}

func (w *waits) serve(p *path, first transport.Transport) {
	for range p.ask {
		err := p.Wait()
		p.back.Store(true)
		if !w.over.Load() {
			first.Wake()
		}
		w.ended <- err
	}
}

// end waits until all waits for paths have ended. A path whose wait ends at this moment may be
// woken once more, and so may the first path: its next wait is then spurious, once, which is legal.
func (w *waits) end() (err error) {
	w.over.Store(true)
	for _, p := range w.paths {
		if !p.back.Load() {
			p.Wake()
		}
	}
	for range w.paths {
		err = errors.Join(err, <-w.ended)
	}
	return err
}

func (w *waits) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		for _, p := range w.paths {
			close(p.ask)
		}
	}
	w.mu.Unlock()
	w.group.Wait()
}

// Arm requests that Wait end at the next event of any path.
func (t *Transport) Arm() error {
	for i, p := range t.paths {
		if err := p.Arm(); err != nil {
			for _, armed := range t.paths[:i] {
				armed.Disarm()
			}
			return err
		}
	}
	return nil
}

// Disarm cancels an Arm.
func (t *Transport) Disarm() {
	for _, p := range t.paths {
		p.Disarm()
	}
}

var errClosed = errors.New("transport/mux: closed")

// Wait blocks until an event of any path, Wake or Close. Any goroutine, one at a time.
func (t *Transport) Wait() error {
	if !t.wait.begin(t.paths[0]) {
		return errClosed
	}
	err := t.paths[0].Wait()
	return errors.Join(err, t.wait.end())
}

// Wake ends the current Wait, or the next one. Any goroutine.
func (t *Transport) Wake() { t.paths[0].Wake() }

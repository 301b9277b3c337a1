package soft

import (
	"errors"
	"sync"
)

var errNotifierClosed = errors.New("the notifier is closed")

// chanNotifier is a notifier without file descriptors: enough for the loop wire, on every system.
type chanNotifier struct {
	ch     chan struct{} // holds one wake
	closed chan struct{}
	once   sync.Once
}

func newChanNotifier() *chanNotifier {
	return &chanNotifier{ch: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (n *chanNotifier) wait() error {
	select {
	case <-n.ch:
		return nil
	case <-n.closed:
		return errNotifierClosed
	}
}

func (n *chanNotifier) wake() {
	select {
	case n.ch <- struct{}{}:
	default:
	}
}

func (n *chanNotifier) close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

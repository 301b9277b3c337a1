// Package notify has the places where a device's owner sleeps.
package notify

import (
	"errors"
	"sync"
)

var ErrClosed = errors.New("the notifier is closed")

// Chan is a notifier without file descriptors: enough for the loop wire, on every system.
type Chan struct {
	ch     chan struct{} // holds one wake
	closed chan struct{}
	once   sync.Once
}

func NewChan() *Chan {
	return &Chan{ch: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (n *Chan) Wait() error {
	select {
	case <-n.ch:
		return nil
	case <-n.closed:
		return ErrClosed
	}
}

func (n *Chan) Wake() {
	select {
	case n.ch <- struct{}{}:
	default:
	}
}

func (n *Chan) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Package notify implements wire.Notifier, where a device's owner sleeps.
package notify

import (
	"errors"
	"sync"
)

// ErrClosed is the error of Wait after Close.
var ErrClosed = errors.New("the notifier is closed")

// Chan is a notifier without file descriptors, for the loop wire and for programs whose devices are
// in asynchronous mode.
type Chan struct {
	ch     chan struct{} // holds one wake
	closed chan struct{}
	once   sync.Once
}

// NewChan makes a notifier that needs no system resources.
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

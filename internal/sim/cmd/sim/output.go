package main

import (
	"errors"
	"io"
	"sync"
)

// output is the output of the command. An abandoned world may still write to it, and finds it
// closed in the end.
type output struct {
	mu sync.Mutex
	w  io.Writer
	// owner: mu
	err error // the first
}

var errClosed = errors.New("the output is closed")

func (o *output) Write(b []byte) (n int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	n, o.err = o.w.Write(b)
	return n, o.err
}

// close returns the first error.
func (o *output) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.err
	o.err = errClosed
	return err
}

// Package buffertest has the buffer that a test reads while others write to it.
//
// Concurrency: all methods may be called at once.
package buffertest

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer with a lock. The zero value is empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

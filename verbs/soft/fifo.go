package soft

import "github.com/tagmatch/tagmatch/internal/invariant"

// fifo is a queue in a ring that grows when it is full, and never shrinks.
type fifo[T any] struct {
	buf        []T    // as long as a power of two
	head, tail uint32 // modulo 2^32
}

func (f *fifo[T]) len() int { return int(f.tail - f.head) }

func (f *fifo[T]) front() *T { return &f.buf[f.head&uint32(len(f.buf)-1)] }

func (f *fifo[T]) at(i int) *T { return &f.buf[(f.head+uint32(i))&uint32(len(f.buf)-1)] }

func (f *fifo[T]) push(v T) {
	if f.len() == len(f.buf) {
		buf := make([]T, max(4, 2*len(f.buf)))
		for i := f.head; i != f.tail; i++ {
			buf[i&uint32(len(buf)-1)] = f.buf[i&uint32(len(f.buf)-1)]
		}
		f.buf = buf
	}
	f.buf[f.tail&uint32(len(f.buf)-1)] = v
	f.tail++
}

// pop removes the front.
func (f *fifo[T]) pop() {
	if invariant.Enabled {
		invariant.Check(f.len() > 0, "order", "an empty queue gives something")
	}
	var zero T
	*f.front() = zero
	f.head++
}

func (f *fifo[T]) clear() {
	clear(f.buf)
	f.head, f.tail = 0, 0
}

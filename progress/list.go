package progress

// list is a queue that any of its elements can leave. Those of operations and of parked waiters,
// which are on the path of a message, have code of their own (opList, package wait).
type list[T any, P listed[T]] struct{ head, tail *T }

// listed is a pointer to what embeds links.
type listed[T any] interface {
	*T
	at() *links[T]
}

// links are the neighbours of an element of a list; the pools of calls and entries use next too.
type links[T any] struct{ next, prev *T }

func (n *links[T]) at() *links[T] { return n }

func (l *list[T, P]) push(x *T) {
	n := P(x).at()
	n.prev, n.next = l.tail, nil
	if l.tail == nil {
		l.head = x
	} else {
		P(l.tail).at().next = x
	}
	l.tail = x
}

func (l *list[T, P]) remove(x *T) {
	n := P(x).at()
	if n.prev == nil {
		l.head = n.next
	} else {
		P(n.prev).at().next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		P(n.next).at().prev = n.prev
	}
	n.next, n.prev = nil, nil
}

// pool keeps up to most elements that nobody uses, as they were dropped.
type pool[T any] struct {
	free []*T // the one that was used last comes last
	most int  // constant
}

// take gives out an element of the pool, or a new one.
func (l *pool[T]) take() *T {
	n := len(l.free) - 1
	if n < 0 {
		return new(T)
	}
	x := l.free[n]
	l.free = l.free[:n]
	return x
}

func (l *pool[T]) drop(x *T) {
	if len(l.free) < l.most {
		l.free = append(l.free, x)
	}
}

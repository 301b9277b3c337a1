package progress

// list is a queue that any of its elements can leave. Those of operations and of parked waiters,
// which are on the path of a message, have code of their own (opList, package wait).
type list[T any, P listed[T]] struct{ head, tail *T }

// listed is a pointer to what embeds links.
type listed[T any] interface {
	*T
	at() *links[T]
}

// links are the neighbours of an element of a list; pools use next too.
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

// pool keeps up to most elements that nobody uses, the one that was used last in front.
type pool[T any, P listed[T]] struct {
	free *T
	n    int
	most int // constant
}

// take gives out an element, as it was dropped, or a new one.
func (l *pool[T, P]) take() *T {
	x := l.free
	if x == nil {
		return new(T)
	}
	n := P(x).at()
	l.free, n.next = n.next, nil
	l.n--
	return x
}

func (l *pool[T, P]) drop(x *T) {
	if l.n < l.most {
		P(x).at().next = l.free
		l.free = x
		l.n++
	}
}

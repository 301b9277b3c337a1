package ibverbs

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
)

// asyncEvents are the events of a device, which a goroutine of its own takes and acknowledges at
// once: who destroys an object waits for the acknowledgement of its events.
type asyncEvents struct {
	d     *device
	file  *os.File // of a duplicate of the context's descriptor
	mu    sync.Mutex
	queue []verbs.AsyncEvent       // guarded by mu, oldest first
	some  atomic.Bool              // the queue is not empty
	gone  atomic.Bool              // the kernel has taken the device away
	srqs  map[uintptr]uint32       // numbers of the SRQs, guarded by mu
	cqs   map[uintptr]*atomic.Bool // of each CQ whether it is overrun, guarded by mu
	ended chan struct{}
}

func startAsync(d *device) (*asyncEvents, error) {
	file, err := pollable(d.context().AsyncFD, "asynchronous events")
	if err != nil {
		return nil, d.named(fail("get_async_event", errnoOf(err), "its descriptor"), "")
	}
	a := &asyncEvents{d: d, file: file, srqs: map[uintptr]uint32{}, cqs: map[uintptr]*atomic.Bool{}, ended: make(chan struct{})}
	go a.run()
	return a, nil
}

// run takes events until the file is closed.
func (a *asyncEvents) run() {
	defer close(a.ended)
	ev := &a.d.mem.event
	for {
		err := whenReadable("get_async_event", a.file, func() syscall.Errno { return a.take(ev) })
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			a.gone.Store(errnoOf(err) == syscall.EIO)
			a.add(verbs.AsyncEvent{Type: verbs.EventDeviceFatal, Err: a.d.named(err, "")})
		}
		a.d.wake()
		if err != nil {
			return
		}
	}
}

// take takes one event: EAGAIN where there is none.
func (a *asyncEvents) take(ev *abi.AsyncEvent) syscall.Errno {
	ret, errno := call(a.d.lib.getAsyncEvent, a.d.ctx, addr(ev))
	if int32(ret) != 0 {
		return errno
	}
	out := verbs.AsyncEvent{Type: verbs.AsyncEventType(ev.EventType)}
	switch out.Type {
	case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst, verbs.EventSQDrained, verbs.EventQPLastWQEReached:
		out.QP = at[abi.QP](ev.Element).QPNum
	case verbs.EventCQErr:
		a.mu.Lock()
		if overrun := a.cqs[ev.Element]; overrun != nil {
			overrun.Store(true)
		}
		a.mu.Unlock()
	case verbs.EventSRQErr, verbs.EventSRQLimitReached:
		a.mu.Lock()
		out.QP = a.srqs[ev.Element]
		a.mu.Unlock()
	}
	_, _ = call(a.d.lib.ackAsyncEvent, addr(ev))
	a.add(out)
	return 0
}

func (a *asyncEvents) add(ev verbs.AsyncEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, ev)
	a.some.Store(true)
}

// drop forgets the events of a queue pair that is gone.
func (a *asyncEvents) drop(qp uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = slices.DeleteFunc(a.queue, func(ev verbs.AsyncEvent) bool {
		return ev.QP == qp && ev.Type != verbs.EventSRQErr && ev.Type != verbs.EventSRQLimitReached
	})
	a.some.Store(len(a.queue) > 0)
}

func (a *asyncEvents) close() error {
	err := a.file.Close()
	<-a.ended
	return err
}

// name has events name an SRQ by its number; 0: no more.
func (a *asyncEvents) name(srq uintptr, num uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if num == 0 {
		delete(a.srqs, srq)
	} else {
		a.srqs[srq] = num
	}
}

// watch has overrun set when the CQ is; nil: no more.
func (a *asyncEvents) watch(cq uintptr, overrun *atomic.Bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if overrun == nil {
		delete(a.cqs, cq)
	} else {
		a.cqs[cq] = overrun
	}
}

func (d *device) PollAsync() (verbs.AsyncEvent, bool) {
	a := d.async
	if !a.some.Load() {
		return verbs.AsyncEvent{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	ev := a.queue[0]
	a.queue = a.queue[1:]
	a.some.Store(len(a.queue) > 0)
	return ev, true
}

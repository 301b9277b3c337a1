package p2p

import (
	"errors"
	"io"
	"sync"
	"syscall"

	"github.com/tagmatch/tagmatch/verbs"
)

// Region is memory that is registered with every device of a World until Close. Messages to and
// from any part of it are sent and received as usual. World.Alloc and World.Register make one; the
// zero value is not one.
type Region struct {
	_      noCopy
	w      *World
	buf    []byte
	memory *memory     // of Alloc; nil: the caller's
	shares []io.Closer // by device; guarded by World.regions
}

// regions are those of a World that are not closed.
type regions struct {
	mu     sync.Mutex
	live   map[*Region]bool
	closed bool // the World has been closed
}

// Alloc returns a Region of size bytes of zeros, page-aligned and outside the Go heap, all of which
// the kernel provides at once. Over shared memory the other ranks of this host map it when they
// first receive a message of more than Config.EagerLimit out of it, and copy from there without the
// kernel: also where it lets no process read the memory of another one (seccomp, Yama). They can
// read all of it, as all ranks of a job can read each other's memory.
//
// A message of 32 to 64 KiB out of it takes half to four fifths of the time, a longer one whose
// sender computes two thirds. All others take as long as from other memory, since both ends copy
// those. Over TCP nothing is gained. Messages are sent from and received into any memory.
//
// size below 1 is ErrInvalid; without memory for it the error is the kernel's. More than the host,
// or the control group of a container, has free is ENOMEM: the kernel would end a process for it
// later. Close frees it.
func (w *World) Alloc(size int) (*Region, error) {
	if size < 1 {
		return nil, invalidf("alloc of %d bytes: at least 1 is needed", size)
	}
	m, err := newMemory(size)
	if err != nil {
		return nil, wrapf("alloc of %d bytes: %w", size, err)
	}
	r, err := w.region(m.bytes, m.fd())
	if err != nil {
		m.free()
		return nil, wrapf("alloc of %d bytes: %w", size, err)
	}
	r.buf, r.memory = m.bytes[:size:size], m
	return r, nil
}

// Register makes a Region of the caller's memory, which must stay where it is and as large until
// Close: Go memory, or mapped memory. Only memory that is registered like this is kept registered
// from one message to the next: the kernel may give other pages to addresses of the Go heap. With
// the software devices that saves nothing.
//
// An empty buf, or one of which a part belongs to a Region already, is ErrInvalid.
func (w *World) Register(buf []byte) (*Region, error) {
	if len(buf) == 0 {
		return nil, invalidf("register: the buffer is empty")
	}
	r, err := w.region(buf, -1)
	if errors.Is(err, syscall.EEXIST) {
		return nil, invalidf("register: a part of the %d bytes belongs to a Region already", len(buf))
	}
	if err != nil {
		return nil, wrapf("register %d bytes: %w", len(buf), err)
	}
	return r, nil
}

// region registers memory, whose pages are those of the descriptor fd unless that is -1.
func (w *World) region(buf []byte, fd int) (*Region, error) {
	w.regions.mu.Lock()
	defer w.regions.mu.Unlock()
	if w.regions.closed {
		return nil, ErrClosed
	}
	r := &Region{w: w, buf: buf}
	owner := w.eng.Owner()
	owner.Lock()
	defer owner.Unlock()
	for _, dev := range w.parts.devs {
		sharer, ok := dev.(verbs.Sharer)
		if !ok {
			continue
		}
		s, err := sharer.Share(buf, fd)
		if err != nil {
			return nil, errors.Join(err, r.unshare())
		}
		r.shares = append(r.shares, s)
	}
	if w.regions.live == nil {
		w.regions.live = map[*Region]bool{}
	}
	w.regions.live[r] = true
	return r, nil
}

// unshare takes the memory from the devices. The engine's lock is held, or the engine closed.
func (r *Region) unshare() error {
	var errs []error
	for _, s := range r.shares {
		errs = append(errs, s.Close())
	}
	r.shares = nil
	return errors.Join(errs...)
}

// Bytes is the memory. It must not be used after Close.
func (r *Region) Bytes() []byte { return r.buf }

// Close ends the registration, and frees the memory of Alloc. It comes after the requests of the
// last operations on the memory were reported complete: with operations under way it is ErrInvalid,
// and nothing is done. It may be called after the World was closed, and again, which does nothing.
func (r *Region) Close() error {
	w := r.w
	w.regions.mu.Lock()
	defer w.regions.mu.Unlock()
	if r.buf == nil {
		return nil
	}
	if w.regions.live[r] {
		if n := w.eng.Uses(r.buf); n != 0 {
			return invalidf("close of a Region of %d bytes: operations on it are not complete: %d", len(r.buf), n)
		}
		owner := w.eng.Owner()
		owner.Lock()
		err := r.unshare()
		owner.Unlock()
		if err != nil {
			return wrapf("close of a Region of %d bytes: %w", len(r.buf), err)
		}
		delete(w.regions.live, r)
	}
	if r.memory != nil {
		r.memory.free()
	}
	r.buf, r.memory = nil, nil
	return nil
}

// close takes all memory from the devices, which are about to be closed. It stays the program's.
func (o *regions) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	var errs []error
	for r := range o.live {
		errs = append(errs, r.unshare())
	}
	o.live = nil
	return errors.Join(errs...)
}

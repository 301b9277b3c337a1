//go:build linux

package shm

import (
	"errors"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// local is what a device shares with all its peers.
type local struct {
	inboxSeg *memfd.Segment
	tableSeg *memfd.Segment // the region table, whose pages are allocated when they are needed
	inbox    shmring.Inbox
	pipe     *pipe // peers write to it to wake the device; nil: there is none yet
	added    bool  // the pipe is in the notifier
}

func newLocal() (*local, error) {
	l := &local{}
	var err error
	if l.inboxSeg, err = memfd.New("tagmatch-inbox", shmring.InboxBytes, memfd.Allocated|memfd.Populated); err == nil {
		l.inbox, err = shmring.NewInbox(l.inboxSeg.Mem)
	}
	if err == nil {
		l.tableSeg, err = memfd.New("tagmatch-regions", mem.Slots*mem.SlotBytes, 0)
	}
	if err == nil {
		l.pipe, err = newPipe()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// piece allocates a piece of the region table, before any key in it exists.
func (l *local) piece(k int) (*mem.Piece, error) {
	if err := l.tableSeg.Allocate(k*mem.PieceBytes, mem.PieceBytes); err != nil {
		return nil, err
	}
	return pieceIn(l.tableSeg.Mem, k), nil
}

// probePidfd finds out whether pidfd_open works, which a container may forbid.
func probePidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	return unix.Close(fd)
}

func (l *local) close() {
	l.inboxSeg.Close()
	l.tableSeg.Close()
	if l.pipe != nil {
		l.pipe.close()
	}
}

// remote is a connection to one peer: both rings, and what the peer shares with all its peers. A
// background goroutine makes it (prepare, upgrade); from Connector.Take on it is the owner's.
type remote struct {
	w        *Wire
	rxSeg    *memfd.Segment // ring that this device receives from
	txSeg    *memfd.Segment // ring that the peer receives from
	inboxSeg *memfd.Segment // the peer's
	tableSeg *memfd.Segment // the peer's

	rx       *shmring.Consumer
	tx       *shmring.Producer
	inbox    shmring.Inbox // the peer's
	table    *mem.Dir      // the peer's; pieces are added when a key in them is first used
	shared   []*mapping    // the peer's shared regions that were read from
	slot     uint32        // of this connection in this device's inbox; 0: none yet
	peerSlot uint32        // of this connection in the peer's inbox
	waker    int           // see wake
	sock     int           // to the peer; closed when either end ends
	pidfd    int           // of the peer's process
	pid      int
	watched  bool   // sock and pidfd are in Wire.watch
	mine     *offer // what this end offers

	late uint32 // the chunk of the peer's that was under way at the last Revoke; 0: none

	probeWord  uint64 // the peer tries to read and write it; not on a stack, which may move
	direct     bool   // the kernel lets this process read the peer's memory
	peerWrites bool   // the kernel lets the peer write to this process's memory, and has not failed to

	local  [wire.MaxPieces]unix.Iovec // arguments of move and moveMany
	remote [wire.MaxPieces]unix.RemoteIovec
}

// region returns the peer's slot for a key, or nil.
func (p *remote) region(key uint32) *mem.Slot {
	if s := p.table.At(key); s != nil {
		return s
	}
	k := int(key&mem.IndexMask) / mem.PieceSlots
	// The peer allocates a piece before it gives away a key in it. Should it not have, this process
	// must not fault on the missing pages: the kernel reads them first, which fails without a
	// signal.
	if !readable(p.tableSeg.Mem[k*mem.PieceBytes:][:mem.PieceBytes]) {
		return nil
	}
	p.table[k] = pieceIn(p.tableSeg.Mem, k)
	return p.table.At(key)
}

// Close frees everything. No payload of the ring may be in use.
func (p *remote) Close() error {
	p.rx, p.tx, p.table = nil, nil, nil
	for _, s := range []*memfd.Segment{p.rxSeg, p.txSeg, p.inboxSeg, p.tableSeg} {
		s.Close()
	}
	for _, m := range p.shared {
		m.seg.Close()
	}
	p.shared = nil
	closeFD(&p.waker)
	closeFD(&p.sock)
	closeFD(&p.pidfd)
	if p.slot != 0 {
		p.w.slotMu.Lock()
		p.w.slots.put(p.slot)
		p.w.slotMu.Unlock()
		p.slot = 0
	}
	return nil
}

// signal tells the peer to look at its ring of this connection, and wakes it if it sleeps.
func (p *remote) signal(urgent bool) {
	if p.inbox.Raise(p.peerSlot, urgent) {
		wake(p.waker)
	}
}

func closeFD(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

// slotSet is a set of inbox slots in use.
type slotSet [shmring.Slots / 64]uint64

var errSlots = errors.New("too many peers on this host")

// get returns a free slot other than eventSlot.
func (s *slotSet) get() (uint32, error) {
	s[0] |= 1 << eventSlot
	for i := range s {
		if free := ^s[i]; free != 0 {
			b := bits.TrailingZeros64(free)
			s[i] |= 1 << b
			return uint32(i*64 + b), nil
		}
	}
	return 0, errSlots
}

func (s *slotSet) put(slot uint32) { s[slot/64] &^= 1 << (slot % 64) }

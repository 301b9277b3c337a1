//go:build linux

package shm

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// local is what a device shares with all its peers.
type local struct {
	inboxSeg *segment
	tableSeg *segment // the region table, whose pieces are made as they are needed
	inbox    shmring.Inbox
	evfd     int
	added    bool // evfd is in the notifier
	buf      [8]byte
}

func newLocal() (*local, error) {
	l := &local{evfd: -1}
	var err error
	if l.inboxSeg, err = newSegment("tagmatch-inbox", shmring.InboxBytes, true); err == nil {
		l.inbox, err = shmring.NewInbox(l.inboxSeg.mem)
	}
	if err == nil {
		l.tableSeg, err = newSegment("tagmatch-regions", mem.Slots*mem.SlotBytes, false)
	}
	if err == nil {
		l.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = checkEventFD(l.evfd) // it needs /proc
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// piece makes a piece of the region table. Its pages are there before a peer can learn of an index
// in it.
func (l *local) piece(k int) (*mem.Piece, error) {
	if err := l.tableSeg.allocate(k*mem.PieceBytes, mem.PieceBytes); err != nil {
		return nil, err
	}
	return pieceIn(l.tableSeg.mem, k), nil
}

// probePidfd tries what identify will do, where containers may refuse it.
func probePidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	return unix.Close(fd)
}

// drain takes what peers have written to the eventfd.
func (l *local) drain() {
	_, _ = unix.Read(l.evfd, l.buf[:])
}

func (l *local) close() {
	l.inboxSeg.close()
	l.tableSeg.close()
	closeFD(&l.evfd)
}

// remote is what a device has of one peer: both rings and what the peer shares with everybody.
type remote struct {
	w        *Wire
	rxSeg    *segment
	txSeg    *segment
	inboxSeg *segment
	tableSeg *segment

	rx       *shmring.Consumer
	tx       *shmring.Producer
	inbox    shmring.Inbox // the peer's
	table    *mem.Dir      // the peer's, as far as this side has needed it
	slot     uint32        // of this link in our inbox; 0: none yet
	peerSlot uint32        // and in the peer's
	evfd     int           // wakes the peer
	sock     int
	pidfd    int
	pid      int
	watched  bool
	mine     *offer // what this end offers

	probeWord  uint64 // the peer tries to read it; here, because what lies on a stack may move
	direct     bool   // we may read the peer's memory
	peerWrites bool   // the peer may write to ours, and has not failed to

	local  [1]unix.Iovec // of the read under way
	remote [1]unix.RemoteIovec
}

// region is the peer's slot for a key, or nil.
func (p *remote) region(key uint32) *mem.Slot {
	if s := p.table.At(key); s != nil {
		return s
	}
	k := int(key&mem.IndexMask) / mem.PieceSlots
	// The peer makes a piece before it gives away a key in it. One that does not must not make this
	// process fault on pages that cannot be had: the kernel touches them first, where that is an
	// error and no signal.
	if !readable(p.tableSeg.mem[k*mem.PieceBytes:][:mem.PieceBytes]) {
		return nil
	}
	p.table[k] = pieceIn(p.tableSeg.mem, k)
	return p.table.At(key)
}

// Close gives everything back. The ring's payloads must not be used any more.
func (p *remote) Close() error {
	p.rx, p.tx, p.table = nil, nil, nil
	for _, s := range []*segment{p.rxSeg, p.txSeg, p.inboxSeg, p.tableSeg} {
		s.close()
	}
	closeFD(&p.evfd)
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

var eventOne = binary.NativeEndian.AppendUint64(nil, 1)

// signal tells the peer to look at this link's rings, and wakes it if it sleeps.
func (p *remote) signal() {
	if p.inbox.Raise(p.peerSlot) {
		_, _ = unix.Write(p.evfd, eventOne)
	}
}

func closeFD(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
		*fd = -1
	}
}

// slotSet hands out inbox slots from 1.
type slotSet [shmring.Slots / 64]uint64

var errSlots = errors.New("too many peers on this host")

func (s *slotSet) get() (uint32, error) {
	s[0] |= 1 // eventSlot
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

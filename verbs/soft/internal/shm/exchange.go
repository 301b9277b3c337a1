//go:build linux

package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/door"
	"github.com/tagmatch/tagmatch/internal/memfd"
	"github.com/tagmatch/tagmatch/internal/shmring"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Each end sends over the Unix socket after authentication (integers are little-endian):
//
//	offer    64 bytes, and the descriptors of ring, inbox, region table and pipe
//	ready    of package dial: the other end's offer is mapped, or why not
//	verdict  1 byte: the sender has all that it needs, and can read, or also write, here
//	bye      1 byte before the socket is closed: why
const (
	magic      = "tmshm\x00"
	version    = 8
	offerBytes = 64
	offerFDs   = 4

	canRead    = 1 // verdict
	cannotRead = 2 // verdict
	bye        = 3 // bye: the link was closed
	violated   = 4 // bye: the receiver has violated the protocol
	canBoth    = 5 // verdict: read and write
	exhausted  = 6 // bye: the sender has no memory for the link

	stagger = shmring.LineBytes
)

// offer describes the ring that its sender receives from.
type offer struct {
	pid       uint32
	slot      uint32 // of the connection in the sender's inbox
	ringBytes uint32
	shift     uint32 // offset of the ring in its segment
	probeAddr uint64 // address of a word in the sender's memory, for canRead
	probe     uint64 // the value of that word
	regions   uint32 // slots of the region table
	inbox     uint32 // bytes of the inbox
}

func (o *offer) encode() []byte {
	b := make([]byte, 0, offerBytes)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, version)
	for _, v := range []uint32{o.pid, o.slot, o.ringBytes, o.shift} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, o.probeAddr)
	b = binary.LittleEndian.AppendUint64(b, o.probe)
	b = binary.LittleEndian.AppendUint32(b, o.regions)
	b = binary.LittleEndian.AppendUint32(b, o.inbox)
	return append(b, make([]byte, offerBytes-len(b))...)
}

// decodeOffer decodes an offer and checks it. The sizes must be those of this device.
func decodeOffer(b []byte, ringBytes int) (*offer, error) {
	if len(b) != offerBytes || string(b[:6]) != magic {
		return nil, errors.New("the peer does not speak the shared-memory exchange")
	}
	if v := binary.LittleEndian.Uint16(b[6:]); v != version {
		return nil, fmt.Errorf("the peer speaks version %d of the shared-memory exchange, this one version %d: run the same build of the program on all ranks", v, version)
	}
	u32 := func(i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }
	o := &offer{pid: u32(8), slot: u32(12), ringBytes: u32(16), shift: u32(20),
		probeAddr: binary.LittleEndian.Uint64(b[24:]), probe: binary.LittleEndian.Uint64(b[32:]), regions: u32(40), inbox: u32(44)}
	switch {
	case int64(o.ringBytes) != int64(ringBytes):
		return nil, fmt.Errorf("the peer's shared-memory exchange has rings of %d bytes, this one of %d: run the same build of the program on all ranks", o.ringBytes, ringBytes)
	case o.slot == eventSlot || o.slot >= shmring.Slots:
		return nil, fmt.Errorf("the peer names inbox slot %d", o.slot)
	case o.shift%stagger != 0 || o.shift >= uint32(os.Getpagesize()):
		return nil, fmt.Errorf("the peer's ring starts at byte %d", o.shift)
	case o.regions != mem.Slots || o.inbox != shmring.InboxBytes:
		return nil, errors.New("the peer's tables have other sizes: run the same build of the program on all ranks")
	}
	return o, nil
}

// ringSegmentBytes is the size of a ring's segment, with a page of room for offer.shift.
func ringSegmentBytes(ringBytes int) int { return os.Getpagesize() + shmring.Size(ringBytes) }

// prepare acquires what a connection to an authenticated peer needs of this process. It runs in the
// background.
func (w *Wire) prepare(conn net.Conn, peer *wire.Address) (any, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%T is no Unix socket", conn)
	}
	p := &remote{w: w, waker: -1, sock: -1, pidfd: -1}
	err := p.identify(uc, peer)
	if err == nil {
		p.sock, err = dial.Duplicate(uc)
	}
	if err == nil {
		p.mine, err = p.offer()
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// upgrade exchanges descriptors with a peer that has prepared too. It runs in the background.
func (w *Wire) upgrade(conn net.Conn, prepared any) (any, error) {
	p := prepared.(*remote)
	if err := p.establish(conn.(unixConn)); err != nil {
		if p.ended() {
			err = verbs.ErrPeerEnded
		}
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// unixConn is what establish needs of a *net.UnixConn.
type unixConn interface {
	net.Conn
	ReadMsgUnix(b, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error)
	WriteMsgUnix(b, oob []byte, addr *net.UnixAddr) (n, oobn int, err error)
}

// establish exchanges offers and verdicts. The verdict is this end's last word: only the peer can
// still fail.
func (p *remote) establish(uc unixConn) error {
	cfg := &p.w.cfg
	fds := unix.UnixRights(p.rxSeg.FD, p.w.local.inboxSeg.FD, p.w.local.tableSeg.FD, p.w.local.pipe.w)
	if _, _, err := uc.WriteMsgUnix(p.mine.encode(), fds, nil); err != nil {
		return err
	}
	closeFD(&p.rxSeg.FD)
	theirs, got, err := readOffer(uc, cfg.RingBytes)
	if err == nil {
		err = p.adopt(theirs, got)
	}
	for _, fd := range got {
		_ = unix.Close(fd)
	}
	if err := dial.Ready(p.w.env.Self, uc, blame(err)); err != nil {
		return err
	}
	verdict := [1]byte{cannotRead}
	if !cfg.NoDirect && p.canRead(theirs) {
		p.direct, verdict[0] = true, canRead
		if p.canWrite(theirs) {
			verdict[0] = canBoth
		}
	}
	if _, err := uc.Write(verdict[:]); err != nil {
		return err
	}
	switch _, err := io.ReadFull(uc, verdict[:]); {
	case errors.Is(err, net.ErrClosed):
		return nil // by Close: the peer may have the connection already, see dial.Ready
	case err != nil:
		return fmt.Errorf("the peer gave up the shared-memory exchange: %w", err)
	}
	switch verdict[0] {
	case canRead, cannotRead:
	case canBoth:
		p.peerWrites = true
	default:
		return fmt.Errorf("%w: the peer's verdict is %d", verbs.ErrProtocol, verdict[0])
	}
	return nil
}

// blame makes a protocol violation of an error in what the peer offers. What the kernel refuses or
// is short of, and the end of the connection, are none.
func blame(err error) error {
	var errno unix.Errno
	var broken *net.OpError
	if err == nil || errors.As(err, &errno) && errno != unix.EINVAL || errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("%w: %w", verbs.ErrProtocol, err)
}

// credentials asks the kernel whose process has dialled, or listens at, the other end: it must be
// this user's.
func credentials(conn net.Conn) (*unix.Ucred, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%T is no Unix socket", conn)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	switch {
	case cerr != nil || err != nil:
		return nil, fmt.Errorf("peer credentials: %w", errors.Join(cerr, err))
	case int(cred.Uid) != os.Geteuid():
		return cred, fmt.Errorf("the peer runs as user %d, this process as %d", cred.Uid, os.Geteuid())
	}
	return cred, nil
}

// from names the process that has dialled.
func from(conn net.Conn) (door.Who, error) {
	cred, err := credentials(conn)
	switch {
	case cred == nil:
		return "", err
	case err != nil:
		return door.Who(fmt.Sprint("user ", cred.Uid)), err
	}
	return door.Who(fmt.Sprint("process ", cred.Pid)), nil
}

// identify finds out which process is at the other end, and opens a pidfd of it.
func (p *remote) identify(uc *net.UnixConn, peer *wire.Address) error {
	cred, err := credentials(uc)
	switch {
	case err != nil:
		return err
	case uint32(cred.Pid) != peer.PID:
		return fmt.Errorf("the peer says that it is process %d, the kernel says %d", peer.PID, cred.Pid)
	}
	p.pid = int(cred.Pid)
	// The peer answers later in the exchange: its process was alive when this opened the pidfd, so
	// that it is not of another process that has got the same PID.
	p.pidfd, err = unix.PidfdOpen(p.pid, 0)
	return os.NewSyscallError("pidfd_open", err)
}

// offer makes the ring that this device receives from.
func (p *remote) offer() (*offer, error) {
	cfg := &p.w.cfg
	p.w.slotMu.Lock()
	slot, err := p.w.slots.get()
	p.w.slotMu.Unlock()
	if err != nil {
		return nil, err
	}
	p.slot = slot
	if p.rxSeg, err = memfd.New("tagmatch-ring", ringSegmentBytes(cfg.RingBytes), memfd.Sparse); err != nil {
		return nil, err
	}
	// Rings start at different cache lines of a page, since otherwise the lines that Poll looks at
	// would all be in one set of the processor's cache.
	shift := int(slot) * stagger % os.Getpagesize()
	// The rest is reserved by the peer, which writes to it first.
	if err = memfd.Reserve(p.rxSeg.Mem[:shift+shmring.First(cfg.RingBytes)]); err != nil {
		return nil, err
	}
	if p.rx, err = shmring.NewConsumer(p.rxSeg.Mem[shift:][:shmring.Size(cfg.RingBytes)]); err != nil {
		return nil, err
	}
	_, _ = rand.Read(wordBytes(&p.probeWord))
	if !cfg.NoDirect {
		allowReading()
	}
	return &offer{pid: uint32(os.Getpid()), slot: slot, ringBytes: uint32(cfg.RingBytes), shift: uint32(shift),
		probeAddr: wordAddr(&p.probeWord), probe: p.probeWord, regions: mem.Slots, inbox: shmring.InboxBytes}, nil
}

// readOffer reads an offer and its descriptors. The caller closes these, also after an error.
func readOffer(uc unixConn, ringBytes int) (*offer, []int, error) {
	buf, n := make([]byte, offerBytes), 0
	var fds []int
	for n < offerBytes {
		oob := make([]byte, unix.CmsgSpace(4*offerFDs))
		k, oobn, flags, _, err := uc.ReadMsgUnix(buf[n:], oob)
		more, perr := parseRights(oob[:oobn])
		fds = append(fds, more...)
		switch {
		case err == nil && k == 0:
			err = io.ErrUnexpectedEOF
		case err == nil && flags&unix.MSG_CTRUNC != 0:
			err = fmt.Errorf("the peer sent too many descriptors, or we may not open more: %w", unix.EMFILE)
		case err == nil:
			err = perr
		}
		if err != nil {
			return nil, fds, fmt.Errorf("shared-memory exchange: %w", err)
		}
		n += k
	}
	o, err := decodeOffer(buf, ringBytes)
	if err == nil && len(fds) != offerFDs {
		err = fmt.Errorf("the peer sent %d descriptors, want %d", len(fds), offerFDs)
	}
	return o, fds, err
}

// parseRights returns the descriptors in a control message.
func parseRights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		more, perr := unix.ParseUnixRights(&msgs[i])
		fds = append(fds, more...)
		err = errors.Join(err, perr)
	}
	return fds, err
}

// adopt maps what the peer offers.
func (p *remote) adopt(o *offer, fds []int) (err error) {
	ringBytes := int(o.ringBytes)
	const readWrite = unix.PROT_READ | unix.PROT_WRITE
	if p.txSeg, err = memfd.Adopt(fds[0], ringSegmentBytes(ringBytes), readWrite, memfd.Sparse); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	ring := p.txSeg.Mem[:int(o.shift)+shmring.Size(ringBytes)]
	if err = memfd.Reserve(ring[:int(o.shift)+shmring.First(ringBytes)]); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	if p.tx, err = shmring.NewProducer(ring[o.shift:], func() error { return memfd.Reserve(ring) }); err != nil {
		return err
	}
	if p.inboxSeg, err = memfd.Adopt(fds[1], shmring.InboxBytes, readWrite, memfd.Allocated|memfd.Populated); err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	if p.inbox, err = shmring.NewInbox(p.inboxSeg.Mem); err != nil {
		return err
	}
	if p.tableSeg, err = memfd.Adopt(fds[2], mem.Slots*mem.SlotBytes, unix.PROT_READ, 0); err != nil {
		return fmt.Errorf("region table: %w", err)
	}
	p.table = new(mem.Dir)
	if p.waker, err = openWaker(fds[3]); err != nil {
		return err
	}
	p.peerSlot = o.slot
	return nil
}

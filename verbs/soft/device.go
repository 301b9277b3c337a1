package soft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/shm"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/tcp"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Limits of the device.
const (
	maxQP       = 1 << qpIndexBits
	maxQPWR     = 1 << 16
	maxRdAtomic = 64
	maxMsgSize  = 1 << 31

	// A QP number is an index into Device.qps and a generation, 24 bits together, so that a late
	// packet for a destroyed QP does not hit its successor.
	qpIndexBits = 14
	qpIndexMask = maxQP - 1
	qpNumMask   = 1<<24 - 1

	defaultMaxInline = 64 << 10
	defaultRingBytes = 256 << 10
	maxCPU           = 1023 // of the kernel's processor sets
	idleBudget       = 16   // packets taken by a PollCQ that has no room for completions
)

// Device is an opened software device. All of its state is owned by whoever may call it (package
// verbs), except what says otherwise.
type Device struct {
	regions *mem.Table
	notif   wire.Notifier
	async   *async // nil: the device works inside calls only
	wires   []wire.Wire
	now     func() int64

	qps     []*queuePair // by index of the QP number; slot 0 stays empty
	work    []*queuePair // have something to transmit
	readers []*queuePair // copy from peers' memory
	slow    []*tagQueue  // hold something back

	took    bool // a poll took packets: release before the next
	news    bool // of those, one that was not just a piece of a read's answer
	dirty   bool // something was sent since the last flush
	armed   bool // wires signal arrivals
	stalled bool // a packet was refused for want of a receive
	more    bool // the last pass stopped for fairness, not for want of room
	closed  bool
	pieces  int // pieces of a read's answer in the poll under way
	wakeAt  int64
	scratch wire.Header // for packets off the fast path; not kept across calls

	// What follows is used now and then, or large.
	qpGen    []uint32
	freeQP   []uint32
	rnrs     uint64 // messages that found no receive and had to wait, every try
	cuts     uint64 // matched messages that never came whole
	lastSRQ  uint32
	users    int                    // PDs, CQs and the channel
	self1    *loop.Wire             // link to ourselves, in wires once it is used
	spare    wire.Wire              // in wires too
	yielded  map[wire.DeviceID]bool // peers that a wire has left to the next one, or to the spare
	missing  error                  // why shared memory could not be opened
	channel  *compChannel
	events   []verbs.AsyncEvent
	ghosts   []*queuePair // of destroyed or reset QPs: have to tell their peers
	inv      *checks
	cfg      Config
	self     wire.Address
	encoded  []byte
	attr     verbs.DeviceAttr
	operands [16]byte // of an atomic on its way into a packet
	pool     bufPool
	first    [4096]byte // a packet that is gathered from a list: of the largest MTU
}

// Open opens a device on the wires that cfg names.
func Open(cfg Config) (*Device, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, regions: mem.NewTable(), now: wire.Monotonic, qps: make([]*queuePair, 1), qpGen: make([]uint32, 1)}
	d.self.ID = wire.NewDeviceID()
	d.self.Rank, d.self.PID = uint32(cfg.Rank), uint32(os.Getpid())
	if invariant.Enabled {
		d.inv = newChecks()
	}
	var err error
	if d.notif, err = d.makeNotifier(); err != nil {
		return nil, fmt.Errorf("verbs/soft: open: wires %v: %w", cfg.Wires, err)
	}
	if err := d.openWires(); err != nil {
		d.closeWires()
		return nil, err
	}
	d.encoded = d.self.Encode()
	d.attr = verbs.DeviceAttr{
		MaxQP: maxQP - 1, MaxQPWR: maxQPWR, MaxSGE: maxSGE,
		MaxCQ: 1 << 16, MaxCQE: maxCQE,
		MaxSRQ: 1 << 16, MaxSRQWR: maxSRQWR, SRQSGE: maxSGE,
		MaxMR: mem.MaxRegions, MaxMsgSize: maxMsgSize, MaxInline: cfg.MaxInline,
		MaxQPRdAtom: maxRdAtomic, ReadFaults: true, MaxMTU: verbs.MTU4096, TM: cfg.tmCaps(), Wires: d.wireNames(),
	}
	return d, nil
}

// fill sets the defaults and checks the rest.
func (c *Config) fill() error {
	var errs []error
	if c.Name == "" {
		c.Name = "soft"
	}
	if len(c.Wires) == 0 {
		c.Wires = []string{WireSHM, WireTCP}
		if c.Fabric != nil {
			c.Wires = []string{WireLoop}
		}
	}
	if c.MaxInline == 0 {
		c.MaxInline = defaultMaxInline
	}
	if c.RingBytes == 0 {
		c.RingBytes = defaultRingBytes
	}
	if c.TCPListen == "" {
		c.TCPListen = "127.0.0.1:0"
	}
	if c.PeerTimeout == 0 {
		c.PeerTimeout = DefaultPeerTimeout
	}
	if c.PeerTimeout < keepalive.Min {
		errs = append(errs, fmt.Errorf("PeerTimeout is %v: use at least %v", c.PeerTimeout, keepalive.Min))
	}
	if c.MaxInline < 0 || c.MaxInline > 1<<20 {
		errs = append(errs, fmt.Errorf("MaxInline is %d: use 1 to 1 MiB", c.MaxInline))
	}
	if c.RingBytes < 4096 || c.RingBytes&(c.RingBytes-1) != 0 {
		errs = append(errs, fmt.Errorf("RingBytes is %d: use a power of two from 4096", c.RingBytes))
	}
	for _, cpu := range c.AsyncCPUs {
		if cpu < 0 || cpu > maxCPU {
			errs = append(errs, fmt.Errorf("AsyncCPUs is %v: there is no processor %d, use 0 to %d", c.AsyncCPUs, cpu, maxCPU))
		}
	}
	if err := c.fillTM(); err != nil {
		errs = append(errs, err)
	}
	if c.Spare != "" && (c.Spare != WireTCP || slices.Contains(c.Wires, WireTCP)) {
		errs = append(errs, fmt.Errorf("wire %q cannot be Spare: only tcp can, where it is not one of Wires", c.Spare))
	}
	for i, w := range c.Wires {
		switch {
		case w != WireLoop && w != WireSHM && w != WireTCP:
			errs = append(errs, fmt.Errorf("unknown wire %q: use loop, shm or tcp", w))
		case w == WireLoop && c.Fabric == nil:
			errs = append(errs, errors.New("wire loop needs a Fabric"))
		case slices.Contains(c.Wires[:i], w):
			errs = append(errs, fmt.Errorf("wire %q is named twice", w))
		}
	}
	if len(errs) > 0 {
		return fail("open", syscall.EINVAL, errors.Join(errs...).Error())
	}
	return nil
}

// onlyLoop says that no wire needs file descriptors.
func (d *Device) onlyLoop() bool { return len(d.cfg.Wires) == 1 && d.cfg.Wires[0] == WireLoop }

func (d *Device) makeNotifier() (wire.Notifier, error) {
	if d.onlyLoop() {
		return notify.NewChan(), nil
	}
	return notify.NewEpoll()
}

func (d *Device) openWires() error {
	names := d.cfg.Wires
	if d.cfg.Spare != "" {
		names = append(slices.Clone(names), d.cfg.Spare)
	}
	for i, name := range names {
		w, err := d.openWire(name, slices.Contains(names[i:], WireTCP) && name == WireSHM)
		switch {
		case err == nil:
			d.wires = append(d.wires, w)
		case name == WireSHM && i < len(names)-1:
			d.missing = err
		case d.missing != nil:
			return fmt.Errorf("verbs/soft: open: wire %s: %w", name, errors.Join(err, fmt.Errorf("wire %s: %w", WireSHM, d.missing)))
		default:
			return fmt.Errorf("verbs/soft: open: wire %s: %w", name, err)
		}
	}
	if d.cfg.Spare != "" {
		d.spare = d.wires[len(d.wires)-1]
	}
	return nil
}

func (d *Device) openWire(name string, yields bool) (wire.Wire, error) {
	env := wire.Env{Self: &d.self, Receiver: (*fromWire)(d), Notifier: d.notif, Secret: d.cfg.Secret, PeerTimeout: d.cfg.PeerTimeout, Yields: yields, Log: d.cfg.Logger}
	switch name {
	case WireSHM:
		return shm.Open(env, shm.Config{RingBytes: d.cfg.RingBytes, NoDirect: d.cfg.NoDirect, Regions: d.regions})
	case WireTCP:
		return tcp.Open(env, d.cfg.TCPListen)
	}
	if clock := loop.Clock(d.cfg.Fabric); clock != nil {
		d.now = clock
	}
	return loop.New(d.cfg.Fabric, env, d.regions), nil
}

// Name is the device's name.
func (d *Device) Name() string { return d.cfg.Name }

// Attr returns the limits.
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// Address is how peers find the device.
func (d *Device) Address() []byte { return d.encoded }

// PollAsync takes the oldest asynchronous event.
func (d *Device) PollAsync() (verbs.AsyncEvent, bool) {
	if invariant.Enabled {
		defer d.enter("get_async_event")()
	}
	if len(d.events) == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := d.events[0]
	d.events = d.events[1:]
	return e, true
}

func (d *Device) event(e verbs.AsyncEvent) {
	d.events = append(d.events, e)
	if d.armed {
		d.sleeper().Wake()
	}
}

// Close frees the device. A Wait under way ends with an error. Closing again does nothing.
func (d *Device) Close() error {
	if d.closed {
		return nil
	}
	n := d.users
	if d.channel != nil && d.channel.users == 0 {
		n-- // the channel alone does not keep the device
	}
	if n > 0 {
		return fail("close_device", syscall.EBUSY, fmt.Sprintf("%d protection domains, completion queues or channels live", n))
	}
	d.closed = true
	if d.channel != nil {
		d.channel.closed.Store(true)
	}
	if d.async != nil {
		d.async.close()
	}
	if invariant.Enabled {
		d.inv.guard.Enter("close_device")
		defer d.inv.guard.Leave()
	}
	d.pump() // the last acknowledgements
	for _, w := range d.wires {
		w.Flush()
	}
	d.closeWires()
	return nil
}

func (d *Device) closeWires() {
	for _, w := range d.wires {
		w.Close()
	}
	_ = d.notif.Close()
	d.regions.Close()
}

// progress is one pass over everything the device has to do. room is how many completions the
// caller can take.
func (d *Device) progress(room int) {
	if d.took {
		d.took, d.news = false, false
		if invariant.Enabled {
			d.inv.lendingEnds()
		}
		for _, w := range d.wires {
			w.Release()
		}
	}
	if room <= 0 {
		room = idleBudget
	}
	d.stalled, d.more, d.pieces = false, false, 0
	budget, n := room, 0
	for _, w := range d.wires {
		k := w.Poll(budget)
		n += k
		budget = max(budget-k, 1) // every wire gets a turn
	}
	if n > 0 {
		d.took = true
		d.news = n > d.pieces
		d.more = n >= room
	}
	if len(d.slow) > 0 {
		d.tickTags()
	}
	if len(d.readers) > 0 {
		d.copyChunk()
	}
	if len(d.work) > 0 {
		d.pump()
	}
	if d.dirty {
		d.flush()
	}
	if d.armed {
		d.keepAwake()
	}
}

func (d *Device) flush() {
	d.dirty = false
	for _, w := range d.wires {
		w.Flush()
	}
}

// pump transmits for every QP that has something. The one that was first goes last the next time.
func (d *Device) pump() {
	keep := 0
	for i := 0; i < len(d.work); i++ { // pumping may add to the list
		q := d.work[i]
		if q.pump() {
			d.work[keep] = q
			keep++
		} else {
			q.inWork = false
		}
	}
	clear(d.work[keep:])
	d.work = d.work[:keep]
	if keep > 1 {
		first := d.work[0]
		copy(d.work, d.work[1:])
		d.work[keep-1] = first
	}
}

// queue puts a QP on the list of those that have something to transmit.
func (d *Device) queue(q *queuePair) {
	if !q.inWork {
		q.inWork = true
		d.work = append(d.work, q)
	}
}

// copyChunk copies one chunk from a peer's memory; QPs take turns.
func (d *Device) copyChunk() {
	q := d.readers[0]
	more := q.copyChunk()
	copy(d.readers, d.readers[1:])
	d.readers = d.readers[:len(d.readers)-1]
	if more {
		d.readers = append(d.readers, q)
	}
}

func (d *Device) armWires() {
	d.armed = true
	for _, w := range d.wires {
		w.Arm()
	}
	d.keepAwake()
}

func (d *Device) disarmWires() {
	if d.armed {
		d.armed = false
		for _, w := range d.wires {
			w.Disarm()
		}
	}
}

// keepAwake makes the next wait return at once when there is work that no arrival announces: a copy
// under way, packets left over. RNR waits get a timer.
func (d *Device) keepAwake() {
	if d.more || len(d.readers) > 0 || len(d.slow) > 0 {
		d.notif.Wake()
	}
	if d.stalled && d.wakeAt != 0 {
		time.AfterFunc(time.Duration(max(d.wakeAt-d.now(), 0)), d.notif.Wake)
		d.wakeAt = 0
	}
}

// postedRecv wakes a sleeper that has refused a packet for want of a receive.
func (d *Device) postedRecv() {
	if d.armed && d.stalled {
		d.notif.Wake()
	}
}

// posted is called after a post that could not go out at once or has to be flushed, while another
// goroutine may sleep.
func (d *Device) posted() {
	if len(d.work) > 0 || len(d.readers) > 0 {
		d.notif.Wake()
	}
	if d.dirty {
		d.flush()
	}
}

// connect finds the link to the device at addr: ourselves, or the first wire that reaches it.
func (d *Device) connect(addr []byte) (l wire.Link, name string, err error) {
	a, err := wire.DecodeAddress(addr)
	if err != nil {
		return nil, "", fail("modify_qp", syscall.EINVAL, "AV.Address: "+err.Error())
	}
	if a.ID == d.self.ID {
		l, err = d.selfLink()
		return l, WireLoop, err
	}
	return d.linkTo(a)
}

// selfLink is the link to ourselves: a loop without delays, whatever wires are configured.
func (d *Device) selfLink() (wire.Link, error) {
	if d.self1 == nil {
		env := wire.Env{Self: &wire.Address{ID: d.self.ID}, Receiver: (*fromWire)(d), Notifier: d.notif}
		d.self1 = loop.New(NewFabric(FabricOptions{}), env, d.regions)
		d.wires = append(d.wires, d.self1)
	}
	return d.self1.ToSelf()
}

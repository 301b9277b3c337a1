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
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/loop"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/shm"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/tcp"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// MaxQP is how many queue pairs a device can have.
const MaxQP = 1<<qpIndexBits - 1

// Limits and defaults.
const (
	maxQPWR     = 1 << 16
	maxRdAtomic = 64
	maxMsgSize  = 1 << 31
	maxCQE      = 1 << 22

	// A QP number has 24 bits: an index into Device.qps, and above it a generation, so that a late
	// packet for a destroyed QP does not reach the next one with that index.
	qpIndexBits = 14
	qpIndexMask = MaxQP
	qpNumMask   = 1<<24 - 1

	defaultMaxInline = 64 << 10
	defaultRingBytes = 256 << 10
	idleBudget       = 16 // packets that a pass receives when the caller has no room for completions
)

// Device is an opened software device. It has one owner at a time (package verbs): only the owner
// reads or writes any field that does not say otherwise.
type Device struct {
	regions *mem.Table
	notif   wire.Notifier // where the owner sleeps, or the goroutine of the asynchronous mode
	async   *async        // asynchronous mode; nil: the device makes progress inside calls only
	wires   []wire.Wire   // open wires in order of preference, and selfWire once it is used
	now     func() int64  // clock in nanoseconds: monotonic, or the loop fabric's virtual one

	qps       []*queuePair // by index of the QP number (qpIndexBits); 0 is never used
	work      []*queuePair // QPs with packets to transmit; each at most once (queuePair.inWork)
	pushed    uint64       // pushes that have succeeded
	askers    []*reader    // those that have asked for pushes which have not ended
	late      []*lateFlush // of queue pairs that have failed
	quietEnd  int64        // when quietTime is over; 0: nobody has waited
	lateTimer *time.Timer  // see wakeLate
	readers   []*reader    // those that copy from peers' memory; each at most once (reader.reading)
	slow      []*tagFaults // those that delay something; each at most once (tagFaults.slow)
	nic       *nic         // habits of network adapters, for tests; nil in production

	took     bool        // the last pass received packets
	news     bool        // one of them was not just a non-final piece of an RDMA READ response
	dirty    bool        // packets were sent since the last flush
	armed    bool        // arrivals wake notif
	telling  bool        // lines.waiting is not empty
	stalled  bool        // the last pass refused a packet because no receive was posted (RNR)
	more     bool        // the last pass stopped at its budget, not because everything was done
	closed   bool        // Close was called
	pieces   int         // non-final pieces of READ responses in the pass under way
	draining *compQueue  // whose Drain makes the pass under way
	wakeAt   int64       // when the first RNR wait ends, on clock now; 0: none
	scratch  wire.Header // header of a packet off the fast path; not kept across calls

	// What follows is rarely used, or large.
	qpGen     []uint32       // by index of the QP number: generation of its next QP
	freeQP    []uint32       // indexes of QP numbers that are free, the oldest first
	rnrs      uint64         // SENDs that found no receive; each retry counts
	regBytes  int            // registered, with hook.Limits.RegBytes
	cuts      uint64         // messages reported as matched whose QP failed before they were complete
	flushers  []wire.Flusher // of wires
	lastSRQ   uint32         // number of the newest SRQ
	users     int            // PDs, CQs and the channel that exist: Close needs 0
	selfWire  *loop.Wire     // carries packets from the device to itself; nil until there is a link
	missing   error          // why shared memory could not be opened
	channel   *compChannel
	events    []verbs.AsyncEvent // not polled yet, oldest first
	lines     lines
	lingering []*queuePair // for QPs that are gone: each is still to tell a peer so
	inv       *checks      // only with -tags invariants
	cfg       Config       // after fill; constant
	self      wire.Address // constant after Open
	encoded   []byte       // self, encoded
	attr      verbs.DeviceAttr
	batch     [wire.MaxPieces]wire.Piece // of one system call, see reader.copyMany; empty between
	pushReq   [pushBytes]byte            // payload of a push request
	pool      bufPool
	first     [4096]byte // first packet of a message, gathered from its SGEs; as long as the largest MTU
}

var (
	_ verbs.Device = (*Device)(nil)
	_ verbs.Sharer = (*Device)(nil)
	_ verbs.Async  = (*Device)(nil)

	_ verbs.LineDevice = (*Device)(nil)
)

// Open opens a device on the wires that cfg names.
func Open(cfg Config) (*Device, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, regions: mem.NewTable(), now: wire.Monotonic, qps: make([]*queuePair, 1), qpGen: make([]uint32, 1), inv: newChecks()}
	d.lines = lines{d: d, peers: map[wire.DeviceID]*line{}}
	d.self.ID = wire.NewDeviceID()
	d.self.Rank, d.self.PID, d.self.Carried = uint32(cfg.Rank), uint32(os.Getpid()), string(cfg.Carried)
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
		MaxQP: MaxQP, MaxQPWR: maxQPWR, MaxSGE: maxSGE,
		MaxCQ: 1 << 16, MaxCQE: cfg.maxCQE(),
		MaxSRQ: 1 << 16, MaxSRQWR: maxSRQWR, SRQSGE: maxSGE,
		MaxMR: mem.MaxRegions, MaxMsgSize: maxMsgSize, MaxInline: cfg.MaxInline,
		MaxQPRdAtom: maxRdAtomic, MaxQPInitRdAtom: maxRdAtomic, ReadFaults: true, MaxMTU: verbs.MTU4096, TM: cfg.tmCaps(), Wires: d.wireNames(),
	}
	d.behave()
	return d, nil
}

// fill sets defaults and checks what was set.
func (c *Config) fill() error {
	var errs []error
	if h := hook.Everywhere; h != nil && c.habits == nil {
		c.habits, c.limits = h, h.Limits
	}
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
	if len(c.Carried) > wire.MaxCarried {
		errs = append(errs, fmt.Errorf("Carried has %d bytes: use at most %d", len(c.Carried), wire.MaxCarried))
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
	if err := c.fillTM(); err != nil {
		errs = append(errs, err)
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

// makeNotifier makes the place where the owner sleeps. The loop wire needs no file descriptors.
func (d *Device) makeNotifier() (wire.Notifier, error) {
	if len(d.cfg.Wires) == 1 && d.cfg.Wires[0] == WireLoop {
		return notify.NewChan(), nil
	}
	return notify.NewEpoll()
}

// openWires opens the wires of Config. Shared memory may be missing where another wire follows it.
func (d *Device) openWires() error {
	names := d.cfg.Wires
	for i, name := range names {
		w, err := d.openWire(name, slices.Contains(names[i:], WireTCP) && name == WireSHM)
		switch {
		case err == nil:
			d.wires = append(d.wires, w)
			if f, ok := w.(wire.Flusher); ok {
				d.flushers = append(d.flushers, f)
			}
		case name == WireSHM && i < len(names)-1:
			d.missing = err
		case d.missing != nil:
			return fmt.Errorf("verbs/soft: open: wire %s: %w", name, errors.Join(err, fmt.Errorf("wire %s: %w", WireSHM, d.missing)))
		default:
			return fmt.Errorf("verbs/soft: open: wire %s: %w", name, err)
		}
	}
	return nil
}

func (d *Device) openWire(name string, yields bool) (wire.Wire, error) {
	env := wire.Env{Self: &d.self, Receiver: (*fromWire)(d), Notifier: d.notif, Secret: d.cfg.Secret, TLS: d.cfg.TLS, PeerTimeout: d.cfg.PeerTimeout,
		Yields: yields, Alone: len(d.cfg.Wires) == 1, Log: d.cfg.Logger}
	open := func(env wire.Env) (wire.Wire, error) { return d.openWireIn(env, name) }
	if hook.Wire != nil {
		return hook.Wire(env, open)
	}
	return open(env)
}

func (d *Device) openWireIn(env wire.Env, name string) (wire.Wire, error) {
	switch name {
	case WireSHM:
		return shm.Open(env, shm.Config{RingBytes: d.cfg.RingBytes, NoDirect: d.cfg.noDirect, Regions: d.regions, Faults: d.cfg.faults})
	case WireTCP:
		return tcp.Open(env, d.cfg.TCPListen, d.cfg.TCPPorts)
	}
	if clock := loop.Clock(d.cfg.Fabric); clock != nil {
		d.now = clock
	}
	return loop.New(d.cfg.Fabric, env, d.regions), nil
}

// Name returns Config.Name.
func (d *Device) Name() string { return d.cfg.Name }

// Attr returns the device's limits and capabilities (ibv_query_device).
func (d *Device) Attr() verbs.DeviceAttr { return d.attr }

// Address returns the address that peers put into QPAttr.AV. The caller must not change it.
func (d *Device) Address() []byte { return d.encoded }

// PollAsync takes the oldest asynchronous event (ibv_get_async_event); false: there is none.
func (d *Device) PollAsync() (verbs.AsyncEvent, bool) {
	if invariant.Enabled {
		defer d.enter("get_async_event")()
	}
	if len(d.events) == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := d.events[0]
	d.events[0] = verbs.AsyncEvent{} // its error is the caller's
	d.events = d.events[1:]
	return e, true
}

// event queues an asynchronous event and wakes the program if it may sleep.
func (d *Device) event(e verbs.AsyncEvent) {
	d.events = append(d.events, e)
	if d.armed {
		d.sleeper().Wake()
	}
}

// Close frees the device; it fails while PDs or CQs of it exist. A Wait under way ends with an
// error. Closing again does nothing.
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
	defer d.inv.closing()()
	d.lines.pump()
	d.pump() // acknowledgements and disconnects that are due
	d.lines.close()
	d.flush()
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

// progress makes one pass over everything that the device has to do. room is how many completions
// the caller can take: a pass receives about as many packets.
func (d *Device) progress(room int) {
	if room <= 0 {
		room = idleBudget
	}
	d.took, d.news, d.stalled, d.more, d.pieces = false, false, false, false, 0
	budget, n := room, 0
	for _, w := range d.wires {
		k := w.Poll(budget)
		n += k
		budget = max(budget-k, 1) // at least one packet for each wire
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
	if len(d.late) > 0 {
		d.flushLate()
	}
	if len(d.work) > 0 {
		d.pump()
	}
	if d.telling {
		d.lines.pump()
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
	for _, w := range d.flushers {
		w.Flush()
	}
}

// pump transmits for every QP on the work list, and then moves the first that has packets left to
// the end.
func (d *Device) pump() {
	keep := 0
	for i := 0; i < len(d.work); i++ { // pumping may add to the list
		q := d.work[i]
		if q.missed != nil && q.link != nil {
			q.catchUp()
		}
		if q.pump() {
			d.work[keep] = q
			keep++
		} else {
			q.inWork = false
		}
	}
	clear(d.work[keep:])
	d.work = d.work[:keep]
	wire.Rotate(d.work)
}

// queue puts a QP on the work list.
func (d *Device) queue(q *queuePair) {
	if !q.inWork {
		q.inWork = true
		d.work = append(d.work, q)
	}
}

// copyChunk copies one chunk from a peer's memory; QPs take turns.
func (d *Device) copyChunk() {
	more := d.readers[0].copyChunk()
	wire.Rotate(d.readers)
	if !more {
		d.readers = d.readers[:len(d.readers)-1]
	}
}

// copies reports whether the device has more to receive or to copy now.
func (d *Device) copies() bool {
	return d.more || slices.ContainsFunc(d.readers, (*reader).copies)
}

// armWires makes arrivals wake the notifier; unless the program is asleep, those that are urgent
// (wire.Wire.Arm). Its caller polls once more before it sleeps.
func (d *Device) armWires(asleep bool) {
	d.armed = true
	for _, w := range d.wires {
		w.Arm(asleep)
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

// keepAwake makes the next Wait return at once if there is work that no arrival signals: packets
// beyond the budget, a copy under way, delayed tag operations. Timers end the first RNR wait, and
// the wait for a peer in the middle of a copy.
func (d *Device) keepAwake() {
	if d.copies() || len(d.slow) > 0 || d.nic != nil && len(d.late) > 0 {
		d.notif.Wake()
	} else if len(d.late)+len(d.readers) > 0 {
		d.wakeLate()
	}
	if d.stalled && d.wakeAt != 0 {
		time.AfterFunc(time.Duration(max(d.wakeAt-d.now(), 0)), d.notif.Wake)
		d.wakeAt = 0
	}
}

// postedRecv wakes the owner's poll, if a packet waits for the receive that was posted.
func (d *Device) postedRecv() {
	if d.armed && d.stalled {
		d.notif.Wake()
	}
}

// posted sees to what a PostSend or Tell has left while the device is armed: another goroutine may
// be asleep, and no poll may follow that would transmit it.
func (d *Device) posted() {
	if len(d.work) > 0 || len(d.readers) > 0 || d.telling {
		d.notif.Wake()
	}
	if d.dirty {
		d.flush()
	}
}

// connect returns the link to the device at addr, and the name of its wire: a loop for the device
// itself, else the first wire that reaches the peer.
func (d *Device) connect(addr []byte) (l wire.Link, name string, err error) {
	a, err := wire.DecodeAddress(addr)
	if err != nil {
		return nil, "", fail("modify_qp", syscall.EINVAL, "AV.Address: "+err.Error())
	}
	if a.ID == d.self.ID {
		l, err = d.selfLink()
		return l, WireLoop, err
	}
	return d.linkTo("modify_qp", a)
}

// selfLink returns the link to the device itself: a loop without delays, whatever the wires are.
func (d *Device) selfLink() (wire.Link, error) {
	if d.selfWire == nil {
		env := wire.Env{Self: &wire.Address{ID: d.self.ID}, Receiver: (*fromWire)(d), Notifier: d.notif}
		d.selfWire = loop.New(NewFabric(), env, d.regions)
		d.selfWire.BeforeSend = d.useSelfWire
	}
	return d.selfWire.ToSelf()
}

// useSelfWire has selfWire polled, from the first packet on: most devices connect to themselves and
// never send there.
func (d *Device) useSelfWire() {
	d.selfWire.BeforeSend = nil
	d.wires = append(d.wires, d.selfWire)
	if d.armed {
		d.selfWire.Arm(true)
	}
}

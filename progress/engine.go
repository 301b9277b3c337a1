package progress

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/matching"
	"github.com/tagmatch/tagmatch/progress/internal/credit"
	"github.com/tagmatch/tagmatch/progress/internal/flow"
	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
	"github.com/tagmatch/tagmatch/progress/internal/wait"
	"github.com/tagmatch/tagmatch/transport"
)

// Config of an Engine. Fields left zero take the default said beside them.
type Config struct {
	Rank, Size int

	EagerLimit      int           // bytes up to which a message is sent at once and copied; default and upper bound: the transport's
	UnexpectedLimit int64         // bytes that unexpected messages of all peers together may take here, records included; default 64 MiB
	SendLimit       int64         // bytes that sends which wait may take here, see weight, before Isend fails with ErrFull; default 1 GiB
	SpinLimit       time.Duration // polling before a waiter parks; 0 adaptive, at most 50 us; below 0 parks at once
	Manual          bool          // no progress goroutine: operations move only inside calls
	Logger          *slog.Logger  // nil: silent
	PollingEnded    func()        // called under the lock when nobody polls any more and a message of bulk bytes or more is under way; nil: nothing
	MaxTags         int           // receives that a device's tag list may hold; 0 what it can; below 0 none: software matches
	OffloadMin      int           // bytes of the smallest receive that the device gets; at most 0: it may be empty

	// Lost is told, once for each, which ranks this one gives up by itself and why, not those that
	// PeerLost was told of. It is called under the lock, before any operation ends for it, and must
	// not block; nil: nothing.
	Lost func(rank int, cause error)

	// Contexts is told what happens to contexts, of which ContextMask is the part of a tag that
	// names one; nil: there are none.
	Contexts    Contexts
	ContextMask uint64

	// SourceMask is the part of a tag with the highest bit that is its sender's rank; 0: there is
	// none. A message that names another rank than its sender is a violation.
	SourceMask uint64

	// TagText is a tag, and the mask of a receive, all ones beside any other, in the words of Dump;
	// nil: in hexadecimal.
	TagText func(tag, mask uint64) string

	// Of progresstest.
	seed  uint64                                       // of the hash tables; 0: a random one
	grace func() (context.Context, context.CancelFunc) // nil: graceByClock
}

const (
	defaultUnexpectedLimit = 64 << 20
	defaultSendLimit       = 1 << 30
)

// Engine is one rank's messaging state. All fields without a word of their own are guarded by mu.
type Engine struct {
	mu   wait.Lock
	wait wait.Set
	inv  engineCheck

	cfg  Config // constant
	tr   transport.Transport
	caps transport.Caps // constant
	log  *slog.Logger

	trace *recording // nil: none is made

	posted   *matching.Posted[*Op]
	fromAny  int               // how many of them are from any of several ranks, see peer.from
	unexp    *unexpected.Queue // their costs are charged to in of their peers
	peers    peers             // by rank, see Engine.peer
	made     []*peer           // of them, those that there are, in the order in which they were made
	dirty    []int             // peers that have something to post again
	again    []int             // spare backing of dirty
	sources  sources
	contexts contexts

	sends slots // rendezvous sends, by what the peer calls them
	reads reading

	held map[request]*Message // those that have a rendezvous request, by it; nil until there is one

	pools  pools
	queues queues

	chain    chain
	stages   pool[stage] // of receives into several buffers that read
	vectors  pool[vector]
	gathered []byte            // scratch of EagerLimit bytes, for the parts of a send
	hdr      transport.RndvHdr // scratch
	hdrExtra [rndvExtraLen]byte

	memory *flow.Memory // of Config.UnexpectedLimit; divided among in of the peers

	backlog   backlog
	flushers  []*Op
	unusual   bool   // it is broken, reaches, or has retired contexts or lost ranks: see checkRecvLocked
	reaches   bool   // see ReachAwaited
	broken    error  // why new operations fail: closed, aborted, transport failure
	abort     []byte // what peers are told of it; nil: the job is not aborted
	leaving   bool   // see Leaving
	closing   bool   // by itself, since the transport has failed
	closed    bool
	wires     []string // once closed: what Wires said last
	off       offload
	m         Metrics // those that are counted at once, see Metrics
	closeOnce sync.Once
	closeErr  error
	entered   stateCounts
	marks     marks
}

// New makes an engine on the transport that newTransport makes around the engine's sink.
func New(cfg Config, newTransport func(sink transport.Sink) (transport.Transport, error)) (*Engine, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("%w: rank %d of %d", ErrInvalid, cfg.Rank, cfg.Size)
	}
	e := &Engine{cfg: cfg, log: cfg.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	tr, err := newTransport((*sink)(e))
	if err != nil {
		return nil, fmt.Errorf("progress: transport: %w", err)
	}
	e.tr, e.caps = tr, tr.Caps()
	e.pools.ops.e, e.pools.calls.e, e.pools.sent.e, e.pools.sent.born, e.queues.e = e, e, e, true, e
	e.stages.most, e.vectors.most = keptStages, keptVectors
	if err := e.configure(); err != nil {
		_ = tr.Close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) configure() error {
	c := &e.cfg
	if e.caps.MaxHdr < rndvExtraLen || e.caps.MaxCtrl < ctrlLen+wantLen || e.caps.MaxRead == 0 {
		return fmt.Errorf("progress: transport %s has too little room: header %d, control %d, read %d bytes",
			e.caps.Name, e.caps.MaxHdr, e.caps.MaxCtrl, e.caps.MaxRead)
	}
	if c.EagerLimit == 0 || c.EagerLimit > e.caps.MaxEager {
		c.EagerLimit = e.caps.MaxEager
	}
	c.EagerLimit = max(c.EagerLimit, 0)
	e.gathered = make([]byte, c.EagerLimit)
	if c.UnexpectedLimit == 0 {
		c.UnexpectedLimit = defaultUnexpectedLimit
	}
	if c.SendLimit == 0 {
		c.SendLimit = defaultSendLimit
	}
	if c.seed == 0 {
		c.seed = rand.Uint64()
	}
	if c.grace == nil {
		c.grace = graceByClock
	}
	e.posted = matching.NewPosted[*Op](c.seed)
	pool := credit.NewPool(c.UnexpectedLimit, c.Size, unexpected.EagerCost(1), unexpected.EagerCost(c.EagerLimit))
	e.memory = flow.NewMemory(pool, func(h matching.Handle) bool {
		_, ok := e.posted.Seq(h)
		return ok
	})
	e.unexp = unexpected.New(c.Size, c.UnexpectedLimit, c.seed)
	e.off.inv = &e.inv
	e.off.init(e.tr.TagList(), c, &e.wait.Large)
	e.sends.init(sendSlots, &e.wait.Large)
	e.reads.init(readSlots, &e.wait.Large)
	e.backlog.limit = c.SendLimit
	e.sources.init(c.Size)
	e.contexts.e, e.contexts.owner, e.contexts.mask = e, c.Contexts, c.ContextMask
	e.peers = make([]*peer, c.Size)
	w := wait.Config{SpinLimit: c.SpinLimit, Manual: c.Manual, Parks: (*waitEngine)(e).parks}
	if c.PollingEnded != nil {
		w.PollingEnded = e.pollingEndedLocked
	}
	e.wait.Init(&e.mu, (*waitEngine)(e), e.tr, w)
	return nil
}

// Address is what the peer ranks pass to Connect.
func (e *Engine) Address() []byte {
	return encodeAddress(e.tr.Address())
}

// Connect says that rank peer is reached at the address that its engine gave. The slice is kept:
// the caller does not change it any more. Nothing is sent, the first message connects. Called once
// per rank, own included, before Start.
func (e *Engine) Connect(peer int, addr []byte) error {
	if peer < 0 || peer >= len(e.peers) {
		return fmt.Errorf("%w: rank %d of %d", ErrInvalid, peer, len(e.peers))
	}
	inner, err := decodeAddress(addr)
	if err != nil {
		return fmt.Errorf("progress: connect rank %d: %w", peer, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.tr.Connect(peer, inner); err != nil {
		return err
	}
	e.off.connected(peer)
	return nil
}

// Start begins progress; Connect was called for all ranks.
func (e *Engine) Start() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wait.Start()
}

// Poll makes progress once, without waiting, and returns how many events there were.
func (e *Engine) Poll() int {
	e.mu.Lock()
	n := e.pollLocked()
	e.leaveLocked()
	e.mu.Unlock()
	return n
}

// Owner is the engine's lock, for a device that works by itself while nobody is in the engine. It
// has AssertHeld too, for builds that check who works on the device.
func (e *Engine) Owner() sync.Locker { return &e.mu }

// Share says how many ranks, this one included, share the processors that this one may use, and how
// many processors those are. A rank that shares them yields its processor while it waits. To be
// called before Start; without it a rank takes it that there are enough.
func (e *Engine) Share(ranks, processors int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wait.Share(ranks, processors)
}

// waitEngine is the engine as those who wait in it see it.
type waitEngine Engine

// Refused is false where flushes wait for what ends by an event, a connection for example.
func (w *waitEngine) Refused() bool {
	return len(w.dirty) != 0 || len(w.flushers) != 0 && w.sends.used == 0 && !w.backlog.busy()
}

func (w *waitEngine) Broken() bool { return w.broken != nil }

// Fail ends everything because the transport has failed. It does not report the ends of reads any
// more: those receives end with Close, after which it writes to no buffer. A goroutine that waits
// for them may be the one that would call Close.
func (w *waitEngine) Fail(err error) {
	e := (*Engine)(w)
	e.breakLocked(err)
	if !e.closing {
		e.closing = true
		go func() { _ = e.Close(err) }() // the program's Close returns the same
	}
}

func (e *Engine) pollLocked() int { return (*waitEngine)(e).Poll() }

// Poll drives the transport, which calls the sink, and posts again what had no room.
func (w *waitEngine) Poll() int {
	e := (*Engine)(w)
	if e.closed {
		return 0
	}
	e.inv.enterPoll(e)
	n, err := e.tr.Poll()
	e.inv.leavePoll()
	if err != nil {
		w.Fail(fmt.Errorf("progress: transport failed: %w", err))
	}
	if len(e.dirty) != 0 {
		n += w.retry()
	}
	if e.off.restless(n) && e.broken == nil {
		n += e.off.tend(n)
	}
	if len(e.contexts.retiring) != 0 {
		e.contexts.tellIdle() // before it is flushed, which what this sends has to be too
	}
	if len(e.flushers) != 0 {
		w.endFlushes()
	}
	e.inv.polled(e, n)
	return n
}

// breakLocked ends everything.
func (e *Engine) breakLocked(err error) {
	e.mu.AssertHeld("the engine")
	if e.broken != nil {
		return
	}
	e.log.Error("engine stopped", "rank", e.cfg.Rank, "err", err)
	e.broken, e.unusual = err, true
	e.failAllLocked(err)
}
